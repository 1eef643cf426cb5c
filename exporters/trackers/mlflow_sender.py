"""Runs in the child: one payload to MLflow. Found by tag, begun or continued, confirmed, and only then finished."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from exporters.trackers.sender import Refused

_FOLDER = "gym_eval"


def send(payload: dict[str, Any]) -> dict[str, Any]:
    """Send ``payload`` and say as which run. Raises Refused."""
    import requests  # noqa: PLC0415 - the client's own
    from mlflow import MlflowClient  # noqa: PLC0415 - heavy, and only here
    from mlflow.exceptions import MlflowException  # noqa: PLC0415

    try:
        return _Sending(MlflowClient(payload["uri"]), payload).send()
    except (MlflowException, requests.RequestException) as error:
        raise Refused(str(error)) from error


class _Sending:
    def __init__(self, client: Any, payload: dict[str, Any]) -> None:
        self.client = client
        self.payload = payload
        self.experiment = self._experiment()

    def send(self) -> dict[str, Any]:
        found = self._runs()
        same = [run for run in found if run.data.tags.get("gym_eval.digest") == self.payload["digest"]]
        done = [run for run in same if run.info.status == "FINISHED"]
        if done:
            return self._answer(done[0].info.run_id, done[0].data.tags["gym_eval.id"], is_unchanged=True)
        for run in found:
            # What an interrupted export left is begun again: parameters of a run cannot be changed.
            if run.info.status != "FINISHED":
                self.client.delete_run(run.info.run_id)
        finished = [run for run in found if run.info.status == "FINISHED"]
        name = self._name(finished)
        run_id = self._create(name)
        self._fill(run_id)
        self._confirm(run_id)
        self.client.set_terminated(run_id, "FINISHED")
        if self.payload["replace"]:
            for run in finished:
                self.client.delete_run(run.info.run_id)
        return self._answer(run_id, name, is_unchanged=False)

    def _experiment(self) -> str:
        found = self.client.get_experiment_by_name(self.payload["experiment"])
        if found is None:
            return self.client.create_experiment(self.payload["experiment"])
        if found.lifecycle_stage == "deleted":
            raise Refused(f"the experiment {self.payload['experiment']!r} was deleted: restore it or name another one")
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
        return self.payload["ids"][str(len(finished) + 1)]

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
        for start in range(0, len(tags), 100):
            self.client.log_batch(run_id, tags=tags[start : start + 100])
        for path in self.payload["files"]:
            self.client.log_artifact(run_id, path, _FOLDER)
        with tempfile.TemporaryDirectory() as folder:
            document = Path(folder) / "export.json"
            document.write_text(self.payload["document"])
            self.client.log_artifact(run_id, str(document), _FOLDER)

    def _confirm(self, run_id: str) -> None:
        """Raise Refused unless the server has what was sent."""
        run = self.client.get_run(run_id)
        wanted = {key: value for part in self.payload["metrics"] for key, value in part.items()}
        wrong = sorted(key for key, value in wanted.items() if run.data.metrics.get(key) != value)
        params = {key: value for part in self.payload["params"] for key, value in part.items()}
        wrong += sorted(key for key, value in params.items() if run.data.params.get(key) != value)
        there = {entry.path: entry.file_size for entry in self.client.list_artifacts(run_id, _FOLDER)}
        for path in map(Path, self.payload["files"]):
            # A store need not know sizes.
            size = there.get(f"{_FOLDER}/{path.name}", -1)
            if size == -1 or (size is not None and size != path.stat().st_size):
                wrong.append(path.name)
        if wrong:
            raise Refused(f"the server does not hold what was sent: {', '.join(wrong[:10])}")

    def _answer(self, run_id: str, name: str, *, is_unchanged: bool) -> dict[str, Any]:
        return {"run_id": run_id, "id": name, "experiment_id": self.experiment, "is_unchanged": is_unchanged}
