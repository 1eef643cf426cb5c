"""A NeMo Gym of one process, as its clients see it: head server, environment servers, resources servers, all on one port each.

It follows the wire contract of NeMo Gym 0.7.0: what is asked, what comes back, and how faults look. A row says what becomes
of it: ``"stub": {"mode": "500", "times": 1}`` fails its first attempt and no other.
"""

from __future__ import annotations

import json
import signal
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import yaml

AGENT = "math_simple_agent"
ENVIRONMENT = "math_environment_server"


def response_of(text: str) -> dict[str, Any]:
    """A Responses object that says ``text``."""
    message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1760000000,
        "model": "org/model",
        "output": [{**message, "content": [{"type": "output_text", "text": text, "annotations": []}]}],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 12,
            "output_tokens": 1,
            "total_tokens": 13,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    }


class NemoStub:
    """The servers while the context lasts. ``config`` is what the head gives out; change it to start them differently."""

    def __init__(self, *, head_port: int = 0) -> None:
        self._head = _serve(self, head_port)
        self._work = _serve(self)
        self.runs: list[dict[str, Any]] = []
        self.headers: list[Mapping[str, str]] = []
        self.asked: Counter[str] = Counter()
        self.config: dict[str, Any] = self.usual_config()
        self._lock = threading.Lock()
        #: Requests of ``/run`` under way, and the most there ever were.
        self.under_way = 0
        self.most = 0
        self.connections = 0
        #: What was asked to be verified, in order.
        self.verified: list[dict[str, Any]] = []
        self.reverify_mode = "stateless"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for server in (self._head, self._work):
            server.shutdown()
            server.server_close()

    @property
    def head_port(self) -> int:
        return self._head.server_address[1]

    @property
    def work_port(self) -> int:
        return self._work.server_address[1]

    def usual_config(self, **model: Any) -> dict[str, Any]:
        """One model, one resources server, one agent and its environment server; ``model`` changes the model's settings."""
        where = {"host": "127.0.0.1", "port": self.work_port}
        return {
            "head_server": {"host": "127.0.0.1", "port": self.head_port},
            "policy_model_name": "org/model",
            "policy_base_url": "http://10.0.0.1:8000/v1",
            "policy_api_key": "secret-of-the-policy",
            "policy_model": {
                "responses_api_models": {
                    "vllm_model": {
                        "entrypoint": "app.py",
                        "base_url": "${policy_base_url}",
                        "api_key": "${policy_api_key}",
                        "model": "${policy_model_name}",
                        **where,
                        **model,
                    }
                }
            },
            "math": {"resources_servers": {"math": {"entrypoint": "app.py", "tolerance": 0.01, **where}}},
            AGENT: {
                "responses_api_agents": {
                    "simple_agent": {
                        "entrypoint": "app.py",
                        "resources_server": {"type": "resources_servers", "name": "math"},
                        "model_server": {"type": "responses_api_models", "name": "policy_model"},
                        **where,
                    }
                }
            },
            ENVIRONMENT: {
                "environment_servers": {
                    "legacy_agent": {"agent_server": {"type": "responses_api_agents", "name": AGENT}, **where}
                }
            },
        }

    def count(self, name: str) -> None:
        with self._lock:
            self.asked[name] += 1

    def begin_run(self, body: dict[str, Any], headers: Mapping[str, str]) -> None:
        with self._lock:
            self.runs.append(body)
            self.headers.append(headers)
            self.under_way += 1
            self.most = max(self.most, self.under_way)

    def end_run(self) -> None:
        with self._lock:
            self.under_way -= 1

    def begin_verify(self, body: dict[str, Any]) -> int:
        """Note a grading: the how-manieth of its rollout."""
        with self._lock:
            self.verified.append(body)
            return sum(
                one["_ng_task_index"] == body["_ng_task_index"] and one["_ng_rollout_index"] == body["_ng_rollout_index"]
                for one in self.verified
            )

    def attempts_of(self, task: int) -> list[int]:
        """The attempt numbers under which the task was asked, in order."""
        return [body.get("_ng_attempt_index", 0) for body in self.runs if body.get("_ng_task_index") == task]


def _serve(stub: NemoStub, port: int = 0) -> ThreadingHTTPServer:
    class Handler(_Handler):
        pass

    Handler.stub = stub

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 256

        def get_request(self) -> Any:
            stub.connections += 1
            return super().get_request()

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A killed client is no news."""

    server = Server(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    return server


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    stub: NemoStub

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Silence."""

    def do_GET(self) -> None:
        self.stub.count(f"GET {self.path}")
        match self.path:
            case "/global_config_dict_yaml":
                self._send(200, yaml.safe_dump(self.stub.config, sort_keys=False))
            case "/reverify_mode":
                self._send(200, self.stub.reverify_mode)
            case "/" | "/livez" | "/health" | "/healthz" | "/readyz":
                self._send(200, {"status": "ok"})
            case _:
                self._send(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.stub.count(f"POST {self.path}")
        if self.path == "/run":
            self.stub.begin_run(body, dict(self.headers.items()))
            try:
                self._run(body)
            finally:
                self.stub.end_run()
        elif self.path == "/verify":
            self._verify(body)
        else:
            self._send(404, {"detail": "Not Found"})

    def _verify(self, body: dict[str, Any]) -> None:
        nth = self.stub.begin_verify(body)
        wish = body.get("stub", {}).get("verify", {})
        if nth <= wish.get("times", 1000) and "status" in wish:
            self._send(wish["status"], "RuntimeError('the judge broke')")
            return
        self._send(200, {**body, "reward": 1.0, **wish.get("reply", {})})

    def _run(self, body: dict[str, Any]) -> None:
        is_episode = "episode_id" in body
        row = body["task"]["task_input"] if is_episode else body
        attempt = body["episode_id"]["attempt"] if is_episode else body.get("_ng_attempt_index", 0)
        wish = row.get("stub", {})
        time.sleep(wish.get("delay", 0))
        mode = wish.get("mode", "ok") if attempt < wish.get("times", 1000) else "ok"
        match mode:
            case "500":
                self._send(500, "RuntimeError('the tool broke')")
            case "422":
                self._send(422, {"detail": [{"type": "missing", "loc": ["body", "responses_create_params"]}]})
            case "429" | "502" | "503" | "504":
                self._send(int(mode), {"detail": "gateway"})
            case "text":
                self._raw(200, b"<html>not json</html>")
            case "nan":
                self._raw(200, json.dumps(self._flat(body) | {"reward": float("nan")}).encode())
            case "drop":
                self.close_connection = True
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
            case _ if is_episode:
                self._send(
                    200, {"episode_id": body["episode_id"], "task_id": body["task"]["task_id"], **self._episode(row, wish)}
                )
            case "reply":
                reply = self._flat(body) | wish["reply"]
                self._send(200, {key: value for key, value in reply.items() if key not in wish.get("without", [])})
            case _:
                self._send(200, self._flat(body))

    def _flat(self, body: dict[str, Any]) -> dict[str, Any]:
        answer = {"response": response_of("5"), "reward": 1.0}
        return {**body, **answer, "mask_sample": False, "failure_kind": None, "failure_reason": None, "extracted": "5"}

    def _episode(self, row: dict[str, Any], wish: Mapping[str, Any]) -> dict[str, Any]:
        return wish.get("reply") or {"result": {"response": response_of("5"), "reward": 1.0, "turns": 2}}

    def _send(self, status: int, value: Any) -> None:
        self._raw(status, json.dumps(value).encode())

    def _raw(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        # As the session middleware of every Gym server does.
        self.send_header("Set-Cookie", "math___session=abc; path=/; httponly")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    # As a service of a job: the head's port is given, and whoever started it ends it.
    with NemoStub(head_port=int(sys.argv[1])):
        signal.pause()
