"""An instant server for collectors: it plays a head, an environment server and a chat model at once, and answers constants."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from typing import Any

import uvloop
from head_config import head_config

_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_TEXT = "The answer is 5. " + "Because it is, as was shown before. " * 55


def replies(port: int) -> dict[bytes, bytes]:
    """Path to the whole HTTP reply."""
    usage = {"input_tokens": 300, "output_tokens": 600, "total_tokens": 900}
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": _TEXT, "annotations": []}]}
    response = {"id": "r", "object": "response", "created_at": 1, "model": "m", "output": [message], "usage": usage}
    row = {"responses_create_params": {"input": "?"}, "response": response, "reward": 1.0, "expected_answer": "5"}
    chat = {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": _TEXT}}],
        "usage": {"prompt_tokens": 300, "completion_tokens": 600, "total_tokens": 900},
    }
    bodies = {
        # A JSON string that holds YAML, which JSON is.
        b"/global_config_dict_yaml": json.dumps(json.dumps(head_config(port))),
        b"/run": json.dumps(row),
        b"/v1/chat/completions": json.dumps(chat),
        # What NeMo Gym's aggregation waits for, computed by nobody.
        b"/aggregate_metrics": json.dumps({"group_level_metrics": [], "agent_metrics": {}, "key_metrics": {}}),
    }
    return {path: _wire(body.encode()) for path, body in bodies.items()}


def _wire(body: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    return head + body


class Connection(asyncio.Protocol):
    """Answers each whole request by its path."""

    def __init__(self, found: dict[bytes, bytes]) -> None:
        self._replies = found
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            length = _LENGTH.search(self._buffer, 0, end + 2)
            whole = end + 4 + (int(length[1]) if length else 0)
            if len(self._buffer) < whole:
                return
            path = self._buffer.split(b" ", 2)[1]
            self._buffer = self._buffer[whole:]
            self._transport.write(self._replies.get(path) or _wire(b'{"status":"ok"}'))


async def serve(port: int) -> None:
    found = replies(port)
    server = await asyncio.get_running_loop().create_server(lambda: Connection(found), "127.0.0.1", port, backlog=1024)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    uvloop.run(serve(parser.parse_args().port))
