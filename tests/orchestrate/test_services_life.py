"""Services of a job: ready means answering, an end is noticed, and nothing outlives its owner."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from collector.errors import ConfigError, ServiceError
from collector.settings import RunSettings
from orchestrate.config.services import CommandService, ExternalService
from orchestrate.services.endpoint import Endpoint
from orchestrate.services.group import ServiceGroup, group_of
from orchestrate.services.ports import free_port, is_taken
from orchestrate.services.readiness import ModelProbe
from tests.orchestrate.project import SERVER, Project
from tests.support.model_server import ModelServer
from tests.support.processes import wait_for

SETTINGS = RunSettings.model_validate(
    {"input_jsonl_fpath": "x", "output_jsonl_fpath": "y.jsonl", "verifier": {"type": "exact_match"}, "policy_model_name": "m"}
)
PROBE = ModelProbe(SETTINGS, "m")


def group(tmp_path: Path, command: list[str] | str, *, model: str = "test-model", **options: object) -> ServiceGroup:
    data = {"type": "command", "command": command, "served_model_name": model, **options}
    service = CommandService.model_validate(data)
    return group_of({"m": service}, logs=tmp_path / "logs", job="7", environ=os.environ)


def server(tmp_path: Path, *switches: str) -> list[str]:
    return [sys.executable, SERVER, "--port={port}", "--model=test-model", f"--log={tmp_path / 'requests.jsonl'}", *switches]


async def bring_up(services: ServiceGroup) -> Endpoint:
    async with services:
        await services.wait_ready(PROBE)
        return services.endpoint("m")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_service_is_ready_when_its_model_answers(tmp_path: Path) -> None:
    endpoint = asyncio.run(bring_up(group(tmp_path, server(tmp_path, "--ready-after=1"))))

    assert endpoint.base_url.startswith("http://127.0.0.1:")
    assert (tmp_path / "requests.jsonl").read_text().count("\n") >= 1


def test_two_jobs_on_one_machine_get_ports_of_their_own(tmp_path: Path) -> None:
    async def both() -> set[str]:
        first, second = group(tmp_path, server(tmp_path)), group(tmp_path, server(tmp_path))
        async with first, second:
            await asyncio.gather(first.wait_ready(PROBE), second.wait_ready(PROBE))
            return {first.endpoint("m").base_url, second.endpoint("m").base_url}

    assert len(asyncio.run(both())) == 2


def test_a_port_is_none_that_the_kernel_gives_away() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])

    assert {10_000 <= free_port() < first for _ in range(50)} == {True}


@pytest.mark.parametrize(
    ("is_held", "options", "allowed"),
    [
        pytest.param(True, {}, 3, id="somebody-has-its-port"),
        pytest.param(False, {}, 0, id="nobody-has"),
        pytest.param(True, {"port": free_port()}, 0, id="the-port-was-asked-for"),
    ],
)
def test_a_service_whose_port_was_taken_may_have_another(
    tmp_path: Path, is_held: bool, options: dict[str, int], allowed: int
) -> None:
    services = group(tmp_path, ["false"], **options)
    with socket.socket() as other:
        if is_held:
            other.bind(("127.0.0.1", int(services.endpoint("m").base_url.split(":")[2].split("/")[0])))
            other.listen()

        with pytest.raises(ServiceError):
            asyncio.run(bring_up(services))

        assert services.restarts_allowed() == allowed


def test_a_server_that_has_a_services_own_port_is_never_measured_in_its_place(
    tmp_path: Path, model_server: ModelServer
) -> None:
    """The service takes its time to notice, and the other server answers to the same name at once."""
    port = int(model_server.base_url.split(":")[2].split("/")[0])

    with pytest.raises(ServiceError, match=f"service m: something listens on its port {port} already"):
        asyncio.run(bring_up(group(tmp_path, "sleep 60", port=port)))


def test_a_services_own_port_may_have_connections_that_were_closed(tmp_path: Path) -> None:
    """As after a service that is started again: its port has nobody, and old connections for a minute."""
    with socket.create_server(("127.0.0.1", 0)) as first:
        port = first.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        served, _ = first.accept()
        served.close()
        client.close()

    assert is_taken(port)
    assert asyncio.run(bring_up(group(tmp_path, server(tmp_path), port=port))).base_url == f"http://127.0.0.1:{port}/v1"


def test_a_job_whose_services_port_was_taken_goes_on_with_another(tmp_path: Path) -> None:
    """The port is taken between its choice and the moment when the service would listen."""
    project = Project(tmp_path / "user", {"type": "local"})
    project.benchmark("math", tasks=2)
    serve = " ".join(project.service()["command"])
    wait = "echo {port} > told; mv told port; until [ -e held ]; do sleep 0.1; done; exit 1"
    project.config["services"]["policy"]["command"] = f"cd {project.root}; if mkdir first; then {wait}; fi; exec {serve}"
    project.submit()
    wait_for((project.root / "port").exists, 60)

    with socket.socket() as other:
        other.bind(("127.0.0.1", int((project.root / "port").read_text())))
        other.listen()
        (project.root / "held").touch()
        watched = project.gym("watch", "--every", "1")

    assert watched.returncode == 0, watched.stdout + watched.stderr + project.logs()
    assert "the services are started again (restart 1)" in project.logs()


@pytest.mark.parametrize(
    ("command", "told"),
    [
        pytest.param(["false"], "ended with exit code 1", id="fails"),
        pytest.param(["true"], "ended with exit code 0", id="ends-well"),
        pytest.param("echo loading; echo out of memory >&2; exit 3", "loading | out of memory", id="last-words"),
        pytest.param(["/nowhere/vllm"], "cannot start '/nowhere/vllm'", id="no-such-program"),
        pytest.param("kill -9 $$", "ended with exit code 137", id="killed"),
    ],
)
def test_a_service_that_ends_before_it_is_ready_is_told_at_once(tmp_path: Path, command: list[str] | str, told: str) -> None:
    begun = time.monotonic()

    with pytest.raises(ServiceError) as caught:
        asyncio.run(bring_up(group(tmp_path, command, ready_timeout_s=60)))

    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    assert time.monotonic() - begun < 10


@pytest.mark.parametrize("switch", ["--mode=500", "--ready-after=60"], ids=["completions-fail", "never-listens"])
def test_a_service_that_never_answers_has_a_time_limit(tmp_path: Path, switch: str) -> None:
    with pytest.raises(ServiceError, match="was not ready within 3 s"):
        asyncio.run(bring_up(group(tmp_path, server(tmp_path, switch), ready_timeout_s=3)))


def test_a_service_with_another_model_is_not_waited_for(tmp_path: Path) -> None:
    begun = time.monotonic()

    with pytest.raises(ServiceError, match="serves test-model and not org/other"):
        asyncio.run(bring_up(group(tmp_path, server(tmp_path), model="org/other", ready_timeout_s=60)))

    assert time.monotonic() - begun < 15


def test_the_end_of_a_service_is_noticed_while_it_is_needed(tmp_path: Path) -> None:
    async def watch() -> None:
        async with group(tmp_path, server(tmp_path, "--exit-after=3", "--last-words=CUDA error")) as services:
            await services.wait_ready(PROBE)
            async with asyncio.timeout(10):
                for _ in range(5):
                    await PROBE("m", services.endpoint("m"), None)
                await services.watch()

    with pytest.raises(ServiceError, match="CUDA error"):
        asyncio.run(watch())


def test_stopping_ends_what_the_service_started(tmp_path: Path) -> None:
    command = f"sleep 300 & echo $! > {tmp_path}/child; exec {' '.join(server(tmp_path))}"

    asyncio.run(bring_up(group(tmp_path, command)))

    wait_for(lambda: not alive(int((tmp_path / "child").read_text())), 5)


def test_a_service_that_ignores_sigterm_is_killed_after_its_grace(tmp_path: Path) -> None:
    async def up_and_down() -> None:
        async with group(tmp_path, f"trap '' TERM; echo $$ > {tmp_path}/pid; while :; do sleep 0.1; done", stop_grace_s=0.5):
            while not (tmp_path / "pid").exists():
                await asyncio.sleep(0.05)

    begun = time.monotonic()
    asyncio.run(up_and_down())

    assert not alive(int((tmp_path / "pid").read_text()))
    assert time.monotonic() - begun < 9


def test_no_service_survives_the_sudden_death_of_its_job(tmp_path: Path) -> None:
    """A collector killed with SIGKILL cannot stop anything; its services and their children end all the same."""
    program = f"""
import asyncio, os
from pathlib import Path
from orchestrate.config.services import CommandService
from orchestrate.services.group import group_of
command = "sleep 300 & echo $! $$ > {tmp_path}/pids; wait"
service = CommandService.model_validate({{"type": "command", "command": command, "served_model_name": "m"}})
async def main():
    async with group_of({{"m": service}}, logs=Path("{tmp_path}"), job="1", environ=os.environ):
        await asyncio.sleep(300)
asyncio.run(main())
"""
    job = subprocess.Popen([sys.executable, "-c", program])
    pids = wait_for(lambda: (tmp_path / "pids").exists() and (tmp_path / "pids").read_text().split())

    job.send_signal(signal.SIGKILL)
    job.wait()

    wait_for(lambda: not any(alive(int(pid)) for pid in pids), 15)


def test_environment_and_placeholders_reach_the_service(tmp_path: Path) -> None:
    command = """echo "$A $B {port} {host} {\\"json\\": {}}"; exit 1"""
    services = group(tmp_path, command, env={"A": "lit:x {port}", "B": "runtime:PATH"}, port=18123)

    with pytest.raises(ServiceError):
        asyncio.run(bring_up(services))

    written = (tmp_path / "logs" / "m-7.log").read_text()
    assert written == f'x 18123 {os.environ["PATH"]} 18123 127.0.0.1 {{"json": {{}}}}\n'


def test_a_variable_that_the_node_lacks_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="NO_SUCH_VARIABLE is not set"):
        asyncio.run(bring_up(group(tmp_path, ["true"], env={"A": "runtime:NO_SUCH_VARIABLE"})))


def test_a_server_of_somebody_else_is_probed_too(tmp_path: Path, model_server: ModelServer) -> None:
    good = ExternalService(type="external", url=model_server.base_url, served_model_name="test-model")
    bad = ExternalService(type="external", url="http://127.0.0.1:9/v1", served_model_name="test-model", ready_timeout_s=1)

    assert asyncio.run(bring_up(group_of({"m": good}, logs=tmp_path, job="1", environ={}))).base_url == model_server.base_url
    with pytest.raises(ServiceError, match="did not answer within 1 s"):
        asyncio.run(bring_up(group_of({"m": bad}, logs=tmp_path, job="1", environ={})))
