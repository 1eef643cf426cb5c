"""Settings of one benchmark as NeMo Gym writes them, put where they belong here. Pure; nothing is dropped without a word.

NeMo Gym keeps everything at the top; here an agent's settings stand under ``agent`` and those of retries under ``retry``. A key
that switches off what always happens here, or switches on what never does, is a problem by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

AGENT: Final = "nemo_gym"
#: Keys of NeMo Gym's collection configuration that are settings of the agent here.
AGENT_KEYS: Final = frozenset(
    {"agent_name", "agent_map", "fan_out", "head_server", "skills", "allow_unsupported_pairing"}
    | {"environment_routing_mode", "environment_server_name", "environment_server_routes"}
)
RETRY_KEYS: Final = frozenset({"retry_terminal_timeouts", "retry_invalid_judge_responses"})
#: Keys with one value that says what always happens here, and why another cannot be had.
FIXED_KEYS: Final[Mapping[str, tuple[Any, str]]] = {
    "route_failures_to_sidecar": (True, "a failure is always recorded and never ends the run"),
    "require_complete": (True, "a run that is not complete always ends with exit code 6 or 7"),
    "retain_results_in_memory": (False, "results are never kept in memory"),
    "max_resident_rollout_tasks": (None, "no more tasks exist than num_samples_in_parallel"),
    "disable_aggregation": (False, "metrics need no servers and are always made"),
    "upload_rollouts": (False, "nothing is uploaded during a run: gym eval export does it afterwards"),
    "count_failure_classes_as_zero": ([], "give it to gym eval aggregate"),
    "count_missing_rollouts_as_zero": (False, "give it to gym eval aggregate"),
    "health_check_workers": (None, "the health check chooses for itself"),
}
#: Keys that make NeMo Gym start servers for the benchmark.
_STARTS_SERVERS: Final = frozenset({"config_paths", "benchmark", "environment", "resources_server", "split", "model_type"})
_ELSEWHERE: Final = "is not supported: servers are not started; NeMo Gym's gym env start does, then agent nemo_gym (--no-serve)"


class Translated(NamedTuple):
    """Settings in this project's form, and what of the given ones cannot be honoured."""

    run: dict[str, Any]
    problems: list[str]


def from_nemo_gym(run: Mapping[str, Any]) -> Translated:
    """``run`` with NeMo Gym's keys in their places when its agent is NeMo Gym's; of any other ``run`` only the problems."""
    problems = [f"{key}: {_ELSEWHERE}" for key in sorted(_STARTS_SERVERS & run.keys())]
    run = {key: value for key, value in run.items() if key not in _STARTS_SERVERS}
    agent = run.get("agent")
    agent = {"type": agent} if isinstance(agent, str) else agent
    if not isinstance(agent, Mapping) or agent.get("type") != AGENT:
        return Translated(run, problems)
    found: dict[str, Any] = {key: value for key, value in run.items() if key not in AGENT_KEYS | RETRY_KEYS | FIXED_KEYS.keys()}
    problems += [problem for key in FIXED_KEYS.keys() & run.keys() if (problem := _fixed(key, run[key]))]
    inner = {key: run[key] for key in AGENT_KEYS & run.keys() if run[key] is not None}
    problems += [f"{key}: stands beside agent.{key}; write it once" for key in inner.keys() & agent.keys()]
    found["agent"] = {**agent, **inner}
    retry = {key: run[key] for key in RETRY_KEYS & run.keys()}
    if retry:
        found["retry"] = {**(run.get("retry") or {}), **retry}
    # NeMo Gym's words for "no limit" and for a default.
    if found.get("limit") == 0 and not isinstance(found["limit"], bool):
        found["limit"] = None
    if found.get("num_samples_in_parallel", 1) is None:
        del found["num_samples_in_parallel"]
    return Translated(found, sorted(problems))


def _fixed(key: str, value: Any) -> str | None:
    always, why = FIXED_KEYS[key]
    same = value == always and isinstance(value, bool) == isinstance(always, bool)
    return None if same else f"{key}: {value!r} is not supported: {why}; leave the key out"
