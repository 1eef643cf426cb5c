"""The model server's process: HTTP/1.1 over an asyncio protocol, the request log, and the faults that happen to a server."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any, NoReturn, cast

import orjson
import uvloop

from tests.support.model_replies import Behaviour, Mode, Prompt, chat_reply, error_reply, read_prompt, responses_reply, say

_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_EXPECT = re.compile(rb"\r\nexpect:\s*100-continue", re.IGNORECASE)
_CLOSE = re.compile(rb"\r\nconnection:\s*close", re.IGNORECASE)
_KEY = re.compile(rb"\r\nauthorization:\s*bearer ([^\r]*)", re.IGNORECASE)
_REPLIES = {"/v1/chat/completions": chat_reply, "/v1/responses": responses_reply}


class Model:
    """The server's state: its settings, its counts and its log."""

    def __init__(self, settings: argparse.Namespace) -> None:
        self.settings = settings
        self.behaviour = Behaviour.parse(settings.mode)
        self.log = os.open(settings.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        # A restarted server goes on counting where the killed one stopped.
        self.by_task: Counter[str] = Counter(line["task"] for line in read_log(settings.log))
        self.requests = 0
        self.in_flight = 0
        self.max_in_flight = 0
        self.started_at = time.monotonic()

    @property
    def is_ready(self) -> bool:
        return time.monotonic() - self.started_at >= self.settings.ready_after

    def record(self, prompt: Prompt, path: str) -> tuple[int, Mode]:
        """Count and log a request before anything else happens to it: its number within the task and its mode."""
        self.requests += 1
        self.by_task[prompt.task] += 1
        nth = self.by_task[prompt.task]
        mode = (prompt.behaviour or self.behaviour).at(nth)
        line = {"n": self.requests, "task": prompt.task, "nth": nth, "mode": mode, "path": path, "at": time.time()}
        os.write(self.log, orjson.dumps(line) + b"\n")
        self._meet_fate()
        return nth, mode

    def _meet_fate(self) -> None:
        settings = self.settings
        if settings.kill_pid_at == self.requests:
            os.kill(int(Path(settings.kill_pid_file).read_text(encoding="ascii")), signal.SIGKILL)
        if settings.exit_after == self.requests:
            sys.stderr.write(settings.last_words + "\n")
            sys.stderr.flush()
            os._exit(settings.exit_code)

    def stats(self) -> dict[str, Any]:
        """The counts as ``/stats`` shows them; ``requests`` is of this process, the rest of the whole log."""
        return {
            "requests": self.requests,
            "total": self.by_task.total(),
            "tasks": len(self.by_task),
            "by_task": dict(self.by_task),
            "in_flight": self.in_flight,
            "max_in_flight": self.max_in_flight,
        }


def read_log(path: str | Path) -> list[dict[str, Any]]:
    """Every whole line of a request log; an absent file has none."""
    data = Path(path).read_bytes() if Path(path).exists() else b""
    return [orjson.loads(line) for line in data.splitlines(keepends=True) if line.endswith(b"\n")]


class Connection(asyncio.Protocol):
    """One client: its requests are answered one after the other, in order."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.loop = asyncio.get_running_loop()
        self.buffer = b""
        self.busy = False
        self.counted = False
        self.closing = False
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop has transport classes of its own, so isinstance would be false.
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._uncount()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        self._advance()

    def _advance(self) -> None:
        while not self.busy and not self.transport.is_closing():
            end = self.buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = self.buffer[:end]
            found = _LENGTH.search(head)
            stop = end + 4 + (int(found[1]) if found else 0)
            if len(self.buffer) < stop:
                if _EXPECT.search(head) and len(self.buffer) == end + 4:
                    self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                return
            body, self.buffer = self.buffer[end + 4 : stop], self.buffer[stop:]
            self.busy = True
            self.closing = _CLOSE.search(head) is not None
            self._route(head, body)

    def _route(self, head: bytes, body: bytes) -> None:
        method, path, *_ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        model, settings = self.model, self.model.settings
        if path == "/stats":
            return self._reply(200, model.stats())
        if path == "/control" and method == "POST":
            model.behaviour = Behaviour.parse(orjson.loads(body)["mode"])
            return self._reply(200, {})
        if not model.is_ready:
            return self._reply(503, error_reply(Mode.UNAVAILABLE))
        if path == "/health":
            return self._reply(200, {"status": "ok"})
        found = _KEY.search(head)
        if settings.api_key and (found is None or found[1].decode("latin-1") != settings.api_key):
            return self._reply(401, error_reply(Mode.UNAUTHORIZED))
        if path == "/v1/models":
            return self._reply(200, {"object": "list", "data": [_model_entry(settings.listed_model or settings.model)]})
        if method == "POST" and path in _REPLIES:
            return self._complete(path, body)
        return self._reply(404, error_reply(Mode.NOT_FOUND))

    def _complete(self, path: str, body: bytes) -> None:
        model = self.model
        request = orjson.loads(body)
        prompt = read_prompt(request)
        nth, mode = model.record(prompt, path)
        model.in_flight += 1
        model.max_in_flight = max(model.max_in_flight, model.in_flight)
        self.counted = True
        reply = _REPLIES[path](prompt, say(prompt, mode), request.get("model", model.settings.model), nth)
        delay_s = prompt.delay_s or model.settings.delay
        if delay_s:
            self.loop.call_later(delay_s, self._end, mode, reply)
        else:
            self._end(mode, reply)

    def _end(self, mode: Mode, reply: dict[str, Any]) -> None:
        if self.transport.is_closing() or mode is Mode.SILENCE:
            return
        if mode is Mode.RESET:
            self.transport.abort()
        elif mode is Mode.DROP_BEFORE:
            self.transport.close()
        elif mode.isdecimal():
            extra = {"Retry-After": self.model.settings.retry_after} if mode is Mode.RATE_LIMITED else None
            self._reply(int(mode), error_reply(mode), extra)
        else:
            self._send(mode, orjson.dumps(reply))

    def _send(self, mode: Mode, payload: bytes) -> None:
        if mode is Mode.MALFORMED:
            payload = payload[: len(payload) // 2]
        if mode is Mode.DROP:
            self.transport.write(_head(200, len(payload)) + payload[: len(payload) // 2])
            self.transport.close()
        elif mode is Mode.DRIP:
            self.transport.write(_head(200, len(payload)))
            self._drip(payload, -(-len(payload) // 10))
        else:
            self.closing = self.closing or mode is Mode.CLOSE
            self._finish(_head(200, len(payload)) + payload)

    def _drip(self, rest: bytes, size: int) -> None:
        if self.transport.is_closing():
            return
        if len(rest) <= size:
            self._finish(rest)
            return
        self.transport.write(rest[:size])
        self.loop.call_later(self.model.settings.drip_interval, self._drip, rest[size:], size)

    def _reply(self, status: int, value: dict[str, Any], headers: dict[str, Any] | None = None) -> None:
        payload = orjson.dumps(value)
        self._finish(_head(status, len(payload), headers) + payload)

    def _finish(self, data: bytes) -> None:
        self._uncount()
        self.transport.write(data)
        if self.closing:
            self.transport.close()
            return
        self.busy = False
        # A delayed reply ends outside data_received: what the client sent meanwhile is still in the buffer.
        if self.buffer:
            self.loop.call_soon(self._advance)

    def _uncount(self) -> None:
        self.model.in_flight -= self.counted
        self.counted = False


def _model_entry(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "tests"}


def _head(status: int, length: int, headers: dict[str, Any] | None = None) -> bytes:
    extra = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    start = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: application/json\r\n"
    return f"{start}{extra}Content-Length: {length}\r\n\r\n".encode("latin-1")


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """The settings of one server; every fault has a switch."""
    parser = argparse.ArgumentParser(description=__doc__)
    option: Callable[..., Any] = parser.add_argument
    option("--host", default="127.0.0.1")
    option("--port", type=int, default=0, help="0: any free port, named on standard output")
    option("--model", default="test-model")
    option("--listed-model", help="what /v1/models names instead of --model")
    option("--log", required=True, help="one JSON line per completion request, written before it is answered")
    option("--mode", default="ok", help=f"MODE or 'MODE xN' (the first N requests of each task): {', '.join(Mode)}")
    option("--delay", type=float, default=0, help="seconds before each answer")
    option("--drip-interval", type=float, default=0.1, help="seconds between the pieces of a dripped answer")
    option("--retry-after", default="1", help="the header's value on 429")
    option("--api-key", help="401 for requests without it")
    option("--ready-after", type=float, default=0, help="503 everywhere for that many seconds")
    option("--exit-after", type=int, help="exit when request N of this process arrives")
    option("--exit-code", type=int, default=1)
    option("--last-words", default="RuntimeError: CUDA error: out of memory")
    option("--kill-pid-at", type=int, help="kill -9 the process named in --kill-pid-file when request N arrives")
    option("--kill-pid-file")
    option("--end-with-stdin", action="store_true", help="end when standard input closes: with the process that started it")
    return parser.parse_args(arguments)


async def serve(settings: argparse.Namespace) -> NoReturn:
    """Serve until killed; the port stands on the first line of standard output."""
    model = Model(settings)
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(model), settings.host, settings.port, backlog=4096
    )
    if settings.end_with_stdin:
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), os._exit, 0)
    print(f"listening on {server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()
    raise SystemExit(0)


def main(arguments: list[str]) -> None:
    """Run the server as a program."""
    settings = parse_arguments(arguments)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    uvloop.run(serve(settings))
