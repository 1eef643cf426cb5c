"""A stand-in for W&B's server: just enough of its GraphQL, uploads and file stream for one run with one artifact.

It is no W&B: it keeps what clients send, answers what they ask for, and misbehaves when told to. What a real client of the tested
version sends is real.
"""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

ENTITY = "team"


@dataclass
class Run:
    """What was sent of one run."""

    project: str
    name: str
    config: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    is_finished: bool = False


@dataclass
class Artifact:
    """An artifact, its manifest and the files that were uploaded for it, by name."""

    number: int
    run: str
    name: str
    state: str = "PENDING"
    files: dict[str, bytes] = field(default_factory=dict)
    manifest: bytes = b""


@dataclass
class Request:
    """One request as it came, body decompressed."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    #: Of a GraphQL request.
    operation: str = ""


#: Looks at a request before it is answered: None lets it pass, anything else is (status, headers, body) instead.
Fault = Callable[[Request], tuple[int, dict[str, str], bytes] | None]


class WandbStandIn:
    """Started on entry, ended on exit."""

    def __init__(self, fault: Fault | None = None) -> None:
        self.fault: Fault = fault or (lambda _: None)
        self.requests: list[Request] = []
        self.runs: dict[str, Run] = {}
        self.artifacts: list[Artifact] = []
        self.run_files: dict[str, bytes] = {}
        self.unknown: list[Request] = []
        self._lock = threading.Lock()
        stand_in = self

        class Handler(_Handler):
            server_state = stand_in

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.uri = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def operations(self) -> list[str]:
        """The names of the GraphQL operations that came, in order."""
        return [request.operation for request in self.requests if request.operation]

    def sent(self) -> bytes:
        """Everything that came, to be searched for what must not be in it; the key of the login is where it belongs."""
        seen = [(r.path, {k: v for k, v in r.headers.items() if k.lower() != "authorization"}, r.body) for r in self.requests]
        return repr(seen).encode() + b"".join(data for artifact in self.artifacts for data in artifact.files.values())

    def answer(self, request: Request) -> tuple[int, dict[str, str], bytes]:
        """The answer of a server that works, unless ``fault`` has another."""
        with self._lock:
            self.requests.append(request)
        wrong = self.fault(request)
        if wrong is not None:
            return wrong
        with self._lock:
            if request.operation:
                return _json({"data": self._graphql(request, json.loads(request.body).get("variables") or {})})
            if request.path.endswith("/file_stream"):
                self._stream(request)
                return _json({})
            if request.path.startswith("/storage/"):
                self._store(request)
                return 200, {}, b""
            self.unknown.append(request)
            return 404, {}, b"{}"

    def _graphql(self, request: Request, given: dict[str, Any]) -> dict[str, Any]:  # noqa: C901 - a table
        match request.operation:
            case "Viewer":
                return {
                    "viewer": {"id": "u", "entity": ENTITY, "username": "u", "email": "", "flags": "{}", "teams": {"edges": []}}
                }
            case "ServerFeaturesQuery":
                return {"serverInfo": {"features": []}}
            case "RunResumeStatus":
                return {"model": {**_PROJECT, "name": given["project"], "bucket": self._resumed(given["name"])}}
            case "UpsertBucket":
                return {"upsertBucket": {"bucket": self._upserted(given), "inserted": True}}
            case "ArtifactType":
                found = any(given["name"].startswith(f"{one.name}:") for one in self.artifacts)
                return {"project": {"artifact": {"artifactType": {"name": "evaluation"}} if found else None}}
            case "CreateArtifact":
                return {"createArtifact": {"artifact": self._created(given["input"])}}
            case "CreateArtifactManifest":
                return {"createArtifactManifest": {"artifactManifest": self._manifest(given["artifactID"])}}
            case "UpdateArtifactManifest":
                return {"updateArtifactManifest": {"artifactManifest": self._manifest(given["artifactManifestID"])}}
            case "CreateArtifactFiles":
                files = given["input"]["artifactFiles"]
                return {"createArtifactFiles": {"files": {"edges": [{"node": self._place(one)} for one in files]}}}
            case "CommitArtifact":
                artifact = self._artifact(given["artifactID"])
                artifact.state = "COMMITTED"
                return {"commitArtifact": {"artifact": {"id": given["artifactID"], "digest": "d"}}}
            case "CreateRunFiles":
                files = [{"name": name, "uploadUrl": f"{self.uri}/storage/run/{name}"} for name in given["files"]]
                return {"createRunFiles": {"runID": f"run-{given['run']}", "uploadHeaders": [], "files": files}}
            case "Run":
                return {"project": {"run": self._shown_run(given["name"])}}
            case "ArtifactByID":
                return {"artifact": self._shown(self._artifact(given["id"]))}
            case _:
                self.unknown.append(request)
                return {}

    def _shown_run(self, name: str) -> dict[str, Any] | None:
        resumed = self._resumed(name)
        if resumed is None:
            return None
        state = "finished" if self.runs[name].is_finished else "running"
        times = {"createdAt": "2026-01-01T00:00:00", "heartbeatAt": "2026-01-01T00:00:00"}
        empty = dict.fromkeys(("sweepName", "group", "jobType", "commit", "description"))
        keys = {"systemMetrics": "{}", "historyKeys": {}, "user": {"name": "u", "username": "u"}}
        return {**resumed, **times, **empty, **keys, "projectId": "1", "state": state, "readOnly": False}

    def _resumed(self, name: str) -> dict[str, Any] | None:
        run = self.runs.get(name)
        if run is None:
            return None
        config = {key: {"value": value} for key, value in run.config.items()}
        empty = {"logLineCount": 0, "historyLineCount": 0, "eventsLineCount": 0, "historyTail": "[]", "eventsTail": "[]"}
        shown = {"id": f"run-{name}", "name": name, "displayName": name, "tags": [], "notes": None, "wandbConfig": "{}"}
        return {**empty, **shown, "config": json.dumps(config), "summaryMetrics": json.dumps(run.summary)}

    def _upserted(self, given: dict[str, Any]) -> dict[str, Any]:
        name = given["name"] or given["id"].removeprefix("run-")
        run = self.runs.setdefault(name, Run(given["project"], name))
        if given.get("config"):
            run.config.update({key: entry["value"] for key, entry in json.loads(given["config"]).items()})
        project = {"id": "p", "name": run.project, "entity": {"id": "e", "name": ENTITY}}
        shown = {"id": f"run-{name}", "name": name, "displayName": given.get("displayName") or name, "description": None}
        return {**shown, "config": json.dumps({}), "sweepName": None, "project": project, "historyLineCount": 0}

    def _created(self, given: dict[str, Any]) -> dict[str, Any]:
        artifact = Artifact(len(self.artifacts), given["runName"], given["artifactCollectionName"])
        self.artifacts.append(artifact)
        return {
            "id": f"artifact-{artifact.number}",
            "state": "PENDING",
            "artifactSequence": {"id": "s", "latestArtifact": None},
        }

    def _shown(self, artifact: Artifact) -> dict[str, Any]:
        project = {"id": "p", "internalId": "cDpwOjE=", "name": "p", "entity": {"name": ENTITY}}
        sequence = {"__typename": "ArtifactSequence", "name": artifact.name, "project": project}
        size = sum(map(len, artifact.files.values()))
        kind = {"__typename": "Artifact", "artifactType": {"name": "evaluation"}, "artifactSequence": sequence}
        facts = {"versionIndex": 0, "state": artifact.state, "size": size, "digest": "d", "fileCount": len(artifact.files)}
        empty = dict.fromkeys(("description", "metadata", "historyStep", "commitHash", "updatedAt"))
        lists = {"ttlDurationSeconds": 0, "ttlIsInherited": False, "tags": [], "aliases": []}
        return {**kind, **facts, **empty, **lists, "id": f"artifact-{artifact.number}", "createdAt": "2026-01-01T00:00:00"}

    def _artifact(self, key: str) -> Artifact:
        return self.artifacts[int(key.rsplit("-", 1)[1])]

    def _manifest(self, key: str) -> dict[str, Any]:
        number = self._artifact(key).number
        place = {"id": f"file-{number}", "name": "wandb_manifest.json", "displayName": "wandb_manifest.json"}
        upload = {**place, "uploadUrl": f"{self.uri}/storage/{number}/manifest", "uploadHeaders": []}
        return {"id": f"manifest-{number}", "file": upload}

    def _place(self, given: dict[str, Any]) -> dict[str, Any]:
        number = self._artifact(given["artifactID"]).number
        url = f"{self.uri}/storage/{number}/files/{given['name']}"
        shown = {"id": f"file-{number}-{given['name']}", "name": given["name"], "displayName": given["name"]}
        more = {"uploadUrl": url, "uploadHeaders": [], "storagePath": f"{number}/{given['name']}", "uploadMultipartUrls": None}
        return {**shown, **more, "artifact": {"id": given["artifactID"]}}

    def _store(self, request: Request) -> None:
        _, _, number, *rest = request.path.split("/")
        if number == "run":
            self.run_files["/".join(rest)] = request.body
            return
        artifact = self.artifacts[int(number)]
        if rest == ["manifest"]:
            artifact.manifest = request.body
        else:
            artifact.files["/".join(rest[1:])] = request.body

    def _stream(self, request: Request) -> None:
        run = self.runs[request.path.split("/")[-2]]
        sent = json.loads(request.body)
        for content in (sent.get("files") or {}).get("wandb-summary.json", {}).get("content", []):
            run.summary = json.loads(content)
        run.is_finished = run.is_finished or bool(sent.get("complete"))


_PROJECT = {"id": "p", "entity": {"id": "e", "name": ENTITY}}


def _json(value: Any) -> tuple[int, dict[str, str], bytes]:
    return 200, {"Content-Type": "application/json"}, json.dumps(value).encode()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_state: WandbStandIn

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        operation = ""
        if self.path == "/graphql":
            asked = json.loads(body)
            operation = asked.get("operationName") or asked["query"].split("(")[0].split("{")[0].split()[-1]
        status, headers, data = self.server_state.answer(Request(self.command, self.path, dict(self.headers), body, operation))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        # A client that gave up meanwhile is gone.
        with suppress(ConnectionError):
            self.end_headers()
            self.wfile.write(data)

    do_GET = do_PUT = do_POST  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass
