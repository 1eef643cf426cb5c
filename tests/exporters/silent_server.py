"""A server that accepts connections and never says a word."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def silent_server() -> Iterator[str]:
    """Its address."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        held: list[socket.socket] = []
        threading.Thread(target=_accept, args=(listening, held), daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        # A blocked accept does not notice that its socket is closed.
        with suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)
        for connection in held:
            connection.close()


def _accept(listening: socket.socket, held: list[socket.socket]) -> None:
    with suppress(OSError):
        while True:
            held.append(listening.accept()[0])
