"""The settings of a benchmark that is a command, and what stands beside it that only commands can use. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from collector.settings import RunSettings
from orchestrate.config.service_command import container_step
from orchestrate.config.submit import Benchmark, Driver

AGENT: Final = "command"
#: Stands where runs name their dataset.
_NO_DATASET: Final = "command"
#: What an attempt may take beyond the command's own limit: its end by SIGTERM, then SIGKILL.
_END_S: Final = 60.0
_POLICY_VARIABLES: Final = ("NEMO_GYM_POLICY_API_KEY", "NEMO_GYM_POLICY_BASE_URL", "NEMO_GYM_POLICY_MODEL_NAME")
_VARIABLES: Final = ("GYM_EVAL_RESULT", "NEMO_GYM_BENCH_DIR")


def command_run(benchmark: Benchmark, driver: Driver) -> dict[str, Any]:
    """What ``run`` would say of it."""
    # Loads asyncio, which few runs need, and nobody who only looks at one.
    from collector.agents.command.agent import DEFAULT_TIMEOUT_S  # noqa: PLC0415

    limit_s = benchmark.timeout_s or DEFAULT_TIMEOUT_S
    image = {} if driver.container is None else {"container": driver.container}
    return {
        "input_jsonl_fpath": _NO_DATASET,
        "agent": {"type": AGENT, "command": benchmark.command, "timeout_s": limit_s, **image},
        "verifier": {"type": "environment"},
        "num_samples_in_parallel": 1,
        "timeouts": {"attempt_s": limit_s + _END_S},
    }


def placed(settings: RunSettings, driver: Driver, *, directory: Path, job: str) -> RunSettings:
    """``settings`` with where the job runs the command and how; those of any other benchmark as they stand."""
    if settings.agent["type"] != AGENT:
        return settings
    place = {"directory": directory, "job": job, "launcher": _launcher(driver, directory, job)}
    return settings.model_copy(update={"agent": {**settings.agent, **place}})


def driver_problems(driver: Mapping[str, Any]) -> list[str]:
    """What is wrong about the container of commands, in plain data, so that it is told together with wrong keys."""
    if driver.get("mounts") and not driver.get("container"):
        return ["driver.mounts: is for driver.container: name the image, or remove it"]
    return []


def has_command(benchmark: object) -> bool:
    """Whether plain data are a benchmark with a command."""
    return isinstance(benchmark, Mapping) and bool(benchmark.get("command"))


def _launcher(driver: Driver, directory: Path, job: str) -> list[str]:
    if driver.container is None:
        return []
    policy = _POLICY_VARIABLES if driver.policy_model is not None else ()
    # Two commands may run side by side in one job.
    name = f"gym-command-{directory.name}-{job}"
    variables = sorted({*driver.env, *policy, *_VARIABLES})
    step = container_step(driver.container, [f"{directory}:{directory}", *driver.mounts], name=name, variables=variables)
    return [*step, f"--container-workdir={directory}"]
