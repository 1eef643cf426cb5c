"""Runs in the child: one payload to MLflow. Found by tag, begun or continued, confirmed, and only then finished."""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import Any

from exporters.trackers.names import stable_id
from exporters.trackers.sender import Refused, check_unchanged, refusals

_FOLDER = "gym_eval"
#: Tags of one batch: a limit of MLflow's REST API.
_TAGS_PER_BATCH = 100


def send(payload: dict[str, Any]) -> dict[str, Any]:
    """Send ``payload`` and say as which run. Raises Refused."""
    with refusals():
        from mlflow import MlflowClient  # noqa: PLC0415 - heavy, and only here

        return _Sending(MlflowClient(payload["uri"]), payload).send()


class _Sending:
    def __init__(self, client: Any, payload: dict[str, Any]) -> None:
        self.client = client
        self.payload = payload
        self.experiment = self._experiment()

    def send(self) -> dict[str, Any]:
        found = self._runs()
        finished = [run for run in found if run.info.status == "FINISHED"]
        same = next((run for run in finished if run.data.tags.get("gym_eval.digest") == self.payload["digest"]), None)
        if same is not None:
            self._delete(run for run in finished if run is not same and self.payload["replace"])
            return self._answer(same.info.run_id, same.data.tags["gym_eval.id"], is_unchanged=True)
        # What an interrupted export left is begun again: parameters of a run cannot be changed.
        self._delete(run for run in found if run.info.status != "FINISHED")
        name = self._name(finished)
        run_id = self._create(name)
        self._fill(run_id)
        self._confirm(run_id)
        self.client.set_terminated(run_id, "FINISHED")
        self._delete(run for run in finished if self.payload["replace"])
        return self._answer(run_id, name, is_unchanged=False)

    def _delete(self, runs: Iterable[Any]) -> None:
        for run in runs:
            self.client.delete_run(run.info.run_id)

    def _experiment(self) -> str:
        from mlflow.exceptions import MlflowException  # noqa: PLC0415

        name = self.payload["experiment"]
        found = self.client.get_experiment_by_name(name)
        if found is None:
            try:
                return self.client.create_experiment(name)
            except MlflowException as error:
                # The export of another benchmark was faster.
                found = self.client.get_experiment_by_name(name) if error.error_code == "RESOURCE_ALREADY_EXISTS" else None
                if found is None:
                    raise
        if found.lifecycle_stage == "deleted":
            raise Refused(f"the experiment {name!r} was deleted: restore it or name another one")
        return found.experiment_id

    def _runs(self) -> list[Any]:
        """Every version of this run, newest first."""
        query = f"tags.`gym_eval.run_id` = '{self.payload['tags']['gym_eval.run_id']}'"
        found = list(self.client.search_runs([self.experiment], query, max_results=1000))
        benchmark = self.payload["tags"]["gym_eval.benchmark"]
        return [run for run in found if run.data.tags.get("gym_eval.benchmark") == benchmark]

    def _name(self, finished: list[Any]) -> str:
        if self.payload["replace"] or not finished:
            return self.payload["id"]
        taken = {run.data.tags.get("gym_eval.id") for run in finished}
        tags = self.payload["tags"]
        names = (stable_id(tags["gym_eval.run_id"], tags["gym_eval.benchmark"], number) for number in count(2))
        return next(name for name in names if name not in taken)

    def _create(self, name: str) -> str:
        tags = {"gym_eval.id": name, **{key: self.payload["tags"][key] for key in ("gym_eval.run_id", "gym_eval.benchmark")}}
        shown = self.payload["run_name"] or name
        return self.client.create_run(self.experiment, tags=tags, run_name=shown).info.run_id

    def _fill(self, run_id: str) -> None:
        from mlflow.entities import Metric, Param, RunTag  # noqa: PLC0415

        now = int(time.time() * 1000)
        for part in self.payload["params"]:
            self.client.log_batch(run_id, params=[Param(key, value) for key, value in part.items()])
        for part in self.payload["metrics"]:
            self.client.log_batch(run_id, metrics=[Metric(key, value, now, 0) for key, value in part.items()])
        tags = [RunTag(key, value) for key, value in self.payload["tags"].items() if key != "gym_eval.id"]
        for start in range(0, len(tags), _TAGS_PER_BATCH):
            self.client.log_batch(run_id, tags=tags[start : start + _TAGS_PER_BATCH])
        for path in self.payload["files"]:
            self.client.log_artifact(run_id, path, _FOLDER)
        document = Path(self.payload["work"]) / "export.json"
        document.write_text(self.payload["document"], encoding="utf-8")
        self.client.log_artifact(run_id, str(document), _FOLDER)

    def _confirm(self, run_id: str) -> None:
        """Raise Refused unless the server has what was sent."""
        run = self.client.get_run(run_id)
        wanted = {key: value for part in self.payload["metrics"] for key, value in part.items()}
        wrong = sorted(key for key, value in wanted.items() if run.data.metrics.get(key) != value)
        params = {key: value for part in self.payload["params"] for key, value in part.items()}
        wrong += sorted(key for key, value in params.items() if run.data.params.get(key) != value)
        tags = {key: value for key, value in self.payload["tags"].items() if key != "gym_eval.id"}
        wrong += sorted(key for key, value in tags.items() if run.data.tags.get(key) != value)
        there = {entry.path: entry.file_size for entry in self.client.list_artifacts(run_id, _FOLDER)}
        sizes = {path.name: path.stat().st_size for path in map(Path, self.payload["files"])}
        for name, wanted_size in {**sizes, "export.json": None}.items():
            # A store need not know sizes.
            size = there.get(f"{_FOLDER}/{name}", -1)
            if size == -1 or (None not in (size, wanted_size) and size != wanted_size):
                wrong.append(name)
        check_unchanged(self.payload["files"])
        if wrong:
            raise Refused(f"the server does not hold what was sent: {', '.join(wrong[:10])}")

    def _answer(self, run_id: str, name: str, *, is_unchanged: bool) -> dict[str, Any]:
        return {"run_id": run_id, "id": name, "experiment_id": self.experiment, "is_unchanged": is_unchanged}
