"""Runs in the child: one payload to W&B, as config, summary and one artifact; nothing of this machine goes with it."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from exporters.trackers.sender import Refused


def send(payload: dict[str, Any]) -> dict[str, Any]:
    """Send ``payload`` and say where it is. Raises Refused."""
    import wandb  # noqa: PLC0415 - heavy, and only here
    from wandb.errors import Error  # noqa: PLC0415

    try:
        return _send(wandb, payload)
    except (Error, TimeoutError, ValueError) as error:
        # W&B tells of illegal names and unfinished uploads by ValueError.
        raise Refused(str(error) or type(error).__name__) from error


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
    with TemporaryDirectory() as folder:
        document = Path(folder) / "export.json"
        document.write_text(payload["document"])
        for path in (*payload["files"], str(document)):
            # By copy: the run's own files must not be opened by whoever uploads later.
            artifact.add_file(path, name=Path(path).name)
        logged = run.log_artifact(artifact)
        if is_online:
            logged.wait(timeout=payload["wait_s"] * 10)
        where, url = run.dir, run.url
        run.finish()
    return {"folder": str(Path(where).parent), "url": url}


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
        "silent": True,
        "host": "",
    }
    if payload["base_url"]:
        values["base_url"] = payload["base_url"]
    return wandb.Settings(**values)
