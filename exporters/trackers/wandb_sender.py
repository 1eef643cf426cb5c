"""Runs in the child: one payload to W&B, as config, summary and one artifact; confirmed where there is a server."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

from exporters.trackers.sender import Refused, check_unchanged, refusals

#: Seconds between two looks at a server that takes in what it was sent behind its answer.
_LOOK_S: Final = 1.0


def send(payload: dict[str, Any]) -> dict[str, Any]:
    """Send ``payload`` and say where it is. Raises Refused."""
    with refusals():
        import wandb  # noqa: PLC0415 - heavy, and only here

        return _send(wandb, payload)


def _send(wandb: Any, payload: dict[str, Any]) -> dict[str, Any]:
    is_online = payload["mode"] == "online"
    run = wandb.init(
        project=payload["project"],
        entity=payload["entity"],
        group=payload["group"],
        name=payload["name"],
        id=payload["id"],
        resume="allow" if is_online else None,
        mode=payload["mode"],
        dir=payload["dir"],
        job_type="evaluation",
        settings=_settings(wandb, payload),
    )
    run.config.update(payload["config"], allow_val_change=True)
    # A replaced run may have had figures that this one has not.
    for key in [key for key in run.summary.keys() if not key.startswith("_") and key not in payload["summary"]]:  # noqa: SIM118
        del run.summary[key]
    run.summary.update(payload["summary"])
    artifact = wandb.Artifact(payload["artifact"], type="evaluation")
    document = Path(payload["work"]) / "export.json"
    document.write_text(payload["document"], encoding="utf-8")
    for path in (*payload["files"], str(document)):
        if is_online:
            # The server is told where a file lies here: by a name that tells nothing, and nothing is copied.
            link = Path(payload["work"]) / "files" / Path(path).name
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(path)
            artifact.add_file(str(link), policy="immutable", skip_cache=True)
        else:
            # By copy: the run's own files must not be opened by whoever uploads later.
            artifact.add_file(path)
    logged = run.log_artifact(artifact)
    if is_online:
        logged.wait(timeout=payload["wait_s"] * 10)
    run.finish()
    check_unchanged(payload["files"])
    if is_online:
        _confirm(wandb, payload, run)
    return {"folder": str(Path(run.dir).parent), "url": run.url}


def _confirm(wandb: Any, payload: dict[str, Any], run: Any) -> None:
    """Raise Refused unless the server shows what was sent."""
    deadline = time.monotonic() + payload["wait_s"]
    while True:
        api = wandb.Api(overrides={"base_url": run.settings.base_url, "entity": run.entity}, timeout=payload["wait_s"])
        found = api.run(f"{run.entity}/{run.project}/{payload['id']}")
        wrong = [key for key, value in payload["summary"].items() if found.summary.get(key) != value]
        wrong += [key for key, value in payload["config"].items() if _essence(found.config.get(key)) != _essence(value)]
        if not wrong:
            return
        if time.monotonic() > deadline:
            raise Refused(f"the server does not show what was sent: {', '.join(sorted(wrong)[:10])}")
        time.sleep(_LOOK_S)


def _essence(value: Any) -> Any:
    # W&B leaves empty objects out of others: of our own entry the digest tells the same.
    return value.get("digest") if isinstance(value, dict) else value


def _settings(wandb: Any, payload: dict[str, Any]) -> Any:
    values: dict[str, Any] = {
        "init_timeout": payload["wait_s"],
        "console": "off",
        "disable_git": True,
        "disable_code": True,
        "save_code": False,
        "x_disable_meta": True,
        "x_disable_stats": True,
        "x_disable_machine_info": True,
        "x_save_requirements": False,
        "silent": True,
        "host": "",
    }
    if payload["base_url"]:
        values["base_url"] = payload["base_url"]
    return wandb.Settings(**values)
