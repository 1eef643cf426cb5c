"""Runs in a Python that has nemo-gym 0.7.0: what its own collector makes of the cases on stdin, one JSON list on stdout."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
import warnings
from pathlib import Path

from nemo_gym.rollout_collection import (
    RolloutCollectionConfig,
    RolloutCollectionHelper,
    _environment_server_for_agent,
    _environment_servers_by_agent,
)
from omegaconf import OmegaConf


def rows_of(case: dict, servers: object, folder: Path) -> dict:
    path = folder / "tasks.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in case["rows"]))
    helper = RolloutCollectionHelper()
    try:
        config = RolloutCollectionConfig(input_jsonl_fpath=str(path), output_jsonl_fpath="out.jsonl", **case["config"])
        rows = helper._preprocess_rows_from_config(config)
        helper._validate_environment_servers(rows, servers)
        helper._stamp_environment_server_agent_refs(rows, servers)
        direct = [row for row in rows if "_ng_environment_server" not in row]
        helper.resolve_task_sources(direct, servers)
        helper._validate_agent_names(direct, servers)
        by_agent = _environment_servers_by_agent(servers)
        targets = [
            row.get("_ng_environment_server") or _environment_server_for_agent(row["agent_ref"]["name"], by_agent)
            for row in rows
        ]
    except Exception as error:  # noqa: BLE001 - any of its errors is a refusal here
        return {"error": f"{type(error).__name__}: {error}"[:300]}
    return {"rows": rows, "targets": targets}


def main() -> None:
    given = json.load(sys.stdin)
    servers = OmegaConf.create(given["servers"])
    out = sys.stdout
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        answers = [rows_of(case, servers, Path(folder)) for case in given["cases"]]
    json.dump(answers, out)


main()
