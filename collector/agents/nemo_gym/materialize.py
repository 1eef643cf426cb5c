"""From a dataset to the rows that NeMo Gym's servers are sent: routed, copied, repeated, numbered.

Rules of NeMo Gym 0.7.0, with two differences: what it only warns of in a row's numbers (a given one that a counted one meets)
is an error, and rows come in (task, repeat) order whatever order they start in.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from collector.agents.nemo_gym.head import checked_servers
from collector.agents.nemo_gym.routing import Routed, check_pairing, is_materialized_task, repeats_of, route, unused_repeats
from collector.agents.nemo_gym.servers import Servers
from collector.agents.nemo_gym.settings import DEFAULT_KEY, NemoGymSettings
from collector.agents.nemo_gym.skills import skills_ref
from collector.errors import DatasetError
from collector.formats import rows
from collector.prompt import messages_of, seeded
from collector.settings import PromptConfig, RunSettings

_log = logging.getLogger(__name__)

_ROLLOUT_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
#: Attempts are told apart by this ending.
_ATTEMPT_ENDING: Final = re.compile(r"-a[1-9][0-9]*\Z", re.ASCII)
#: Ids of rows that give none.
_COUNTED_ID: Final = re.compile(r"[0-9]+-[0-9]+", re.ASCII)
#: Task and repeat together are a number of 64 bits.
_LARGEST_TASK: Final = 2**31 - 1
#: Keys of collectors that a dataset may have; rows that were prepared before carry their numbers.
_MAY_GIVE: Final = frozenset({rows.TASK_INDEX, rows.ROLLOUT_INDEX, rows.ROLLOUT_ID})


class NemoGymRows:
    """Makes the rows of one run, line by line of its dataset, in the order of the dataset."""

    def __init__(self, settings: NemoGymSettings, run: RunSettings, prompt: PromptConfig | None) -> None:
        self._settings = settings
        self._run = run
        self._prompt = prompt
        self._servers: Servers | None = None
        self._skills = skills_ref(settings.skills.path) if settings.skills else None
        #: Digests of the lines that a number was counted for: the lines themselves weigh too much.
        self._tasks: dict[bytes, int] = {}
        self._given: set[int] = set()
        self._repeats: Counter[int] = Counter()
        self._names: set[str] = set()
        self._ids: set[str] = set()

    def rows_of(self, line: bytes, row: dict[str, Any]) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """(task, repeat, row) for each rollout of the dataset's ``line``. Raises ValueError or ConfigError."""
        self._check_keys(row)
        is_flat = not is_materialized_task(row)
        row = self._with_parameters(row) if is_flat else self._bare(row)
        routed = self._route(row)
        if routed.server is not None:
            server = self._need_servers().get(routed.server, kind="environment_servers", whose="environment server")
            agent = check_pairing(row, server, self._need_servers())
            row = {**row, rows.ENVIRONMENT_SERVER: server.name}
            if is_flat and agent is not None and not row.get("agent_ref"):
                row["agent_ref"] = {"name": agent}
        if routed.named is not None:
            row = {**row, "agent_ref": {"name": routed.named}}
        task = self._task_of(line, row)
        for copy in routed.copies:
            self._names.update(name for name in (copy, routed.basis) if name)
            sent = row
            if copy is not None and (row.get("agent_ref") or {}).get("name") != copy:
                sent = {**row, "agent_ref": {"name": copy}}
            many = len(routed.copies) > 1 or repeats_of(copy, routed, self._run.num_repeats) > 1
            for _ in range(repeats_of(copy, routed, self._run.num_repeats)):
                repeat = self._repeats[task]
                self._repeats[task] += 1
                yield task, repeat, self._numbered(sent, repeat, is_one_of_many=many)

    def source(self, path: Path) -> Path:
        """``path``, looked for in the roots of ``NEMO_GYM_EXTRA_ROOTS`` and then here; as it stands when it is nowhere."""
        roots = [Path(root) for root in os.environ.get("NEMO_GYM_EXTRA_ROOTS", "").split(os.pathsep) if root]
        return next((found for root in roots if (found := root / path).exists()), path)

    def finish(self, path: Path) -> None:
        """Say what was not used. Raises DatasetError when counted task numbers meet given ones."""
        if both := sorted(self._given & set(self._tasks.values())):
            raise DatasetError(
                f"some rows give {rows.TASK_INDEX} and some do not, and both kinds have {', '.join(map(str, both[:5]))}.",
                "Give every row its number, or none.",
                path,
            )
        if unused := unused_repeats(self._run.num_repeats, self._names):
            _log.warning("num_repeats names %s, and no row of %s goes by it", ", ".join(unused), path)

    def _route(self, row: Mapping[str, Any]) -> Routed:
        needs = "task_source" in row and not self._settings.routes.get(DEFAULT_KEY) and not row.get("agent_ref")
        return route(row, self._settings, self._need_servers() if needs else None)

    def _need_servers(self) -> Servers:
        if self._servers is None:
            self._servers = checked_servers(self._settings)
        return self._servers

    def _check_keys(self, row: Mapping[str, Any]) -> None:
        if reserved := sorted(key for key in row if key.startswith("_ng_") and key not in _MAY_GIVE):
            raise ValueError(f"the row has reserved keys: {', '.join(reserved)}")
        if not isinstance(row.get("task_source"), str | None):
            raise ValueError("task_source is no text")  # noqa: TRY004 - data
        if not isinstance(row.get("agent_ref"), Mapping | None):
            raise ValueError("agent_ref is no object with a name")  # noqa: TRY004 - data
        rollout_id = row.get(rows.ROLLOUT_ID)
        if rollout_id is not None and not (isinstance(rollout_id, str) and _ROLLOUT_ID.fullmatch(rollout_id)):
            raise ValueError(f"{rows.ROLLOUT_ID} {rollout_id!r} is not letters, digits, '.', '_' and '-'")
        if isinstance(rollout_id, str) and _ATTEMPT_ENDING.search(rollout_id):
            raise ValueError(f"{rows.ROLLOUT_ID} {rollout_id!r} ends as attempts do (-a1, -a2)")
        if isinstance(rollout_id, str) and _COUNTED_ID.fullmatch(rollout_id):
            raise ValueError(f"{rows.ROLLOUT_ID} {rollout_id!r} looks like a task and its repeat, which rows without one have")

    def _with_parameters(self, row: dict[str, Any]) -> dict[str, Any]:
        params = row.get("responses_create_params", {})
        if not isinstance(params, dict):
            raise ValueError("responses_create_params is not an object")  # noqa: TRY004 - data
        if self._prompt is not None:
            if params.get("input"):
                raise ValueError("the row has an input and the run a prompt_config: use one of them")
            params = {**params, "input": messages_of(self._prompt, row)}
        elif "responses_create_params" not in row:
            raise ValueError("the row has no responses_create_params")
        params = {**params, **self._run.responses_create_params}
        skills = {} if self._skills is None else {"skills_ref": self._skills}
        return {**row, "responses_create_params": params, **skills}

    def _bare(self, row: dict[str, Any]) -> dict[str, Any]:
        set_keys = {
            "responses_create_params": self._run.responses_create_params,
            "skills": self._skills,
            "num_repeats_add_seed": self._run.num_repeats_add_seed,
            "prompt_config": self._prompt,
        }
        if used := [key for key, value in set_keys.items() if value]:
            raise ValueError(f"a row with task_input takes no {' and no '.join(used)} of the run")
        return row

    def _task_of(self, line: bytes, row: Mapping[str, Any]) -> int:
        given = row.get(rows.TASK_INDEX)
        if given is None:
            return self._tasks.setdefault(hashlib.sha256(line).digest(), len(self._tasks))
        if not isinstance(given, int) or isinstance(given, bool) or not 0 <= given <= _LARGEST_TASK:
            raise ValueError(f"{rows.TASK_INDEX} is {given!r}, not a number from 0 to {_LARGEST_TASK}")
        self._given.add(given)
        return given

    def _numbered(self, row: dict[str, Any], repeat: int, *, is_one_of_many: bool) -> dict[str, Any]:
        rollout_id = row.get(rows.ROLLOUT_ID)
        if rollout_id is not None and (is_one_of_many or repeat):
            row = {**row, rows.ROLLOUT_ID: f"{rollout_id}-r{repeat}"}
        if rollout_id is not None:
            if row[rows.ROLLOUT_ID] in self._ids:
                raise ValueError(f"{rows.ROLLOUT_ID} {row[rows.ROLLOUT_ID]!r} occurs twice")
            self._ids.add(row[rows.ROLLOUT_ID])
        return seeded(row, repeat) if self._run.num_repeats_add_seed else row
