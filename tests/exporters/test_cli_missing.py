"""``gym eval export RUN``, and what its help may import."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from collector.errors import IncompleteError
from exporters.ledger import read_events
from exporters.names import BUILTIN
from orchestrate.cli import export_missing as command
from orchestrate.cli.export import main
from orchestrate.runs.plan import BenchmarkPlan
from tests.exporters.made_runs import merged_run
from tests.orchestrate.yaml_problems import config, load

BACKENDS = ["mlflow", "wandb", "pyarrow", "inspect_ai", "pandas", "pydantic", "hydra", "msgspec", "orjson"]


@pytest.mark.parametrize("arguments", [["--help"], ["eval", "export", "--help"]], ids=" ".join)
def test_help_imports_no_backend(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom orchestrate.cli.main import main\n"
        f"try:\n    main({arguments!r})\nexcept SystemExit:\n    pass\n"
        f"sys.exit(' '.join(name for name in {BACKENDS!r} if name in sys.modules))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0 or not done.stderr.strip(), done.stderr
    assert "Example: gym eval export" in " ".join(done.stdout.split()) or arguments == ["--help"]


def test_naming_an_exporter_imports_no_backend_of_another() -> None:
    code = (
        "import sys\nfrom exporters.registry import EXPORTERS, load_run_exporter_class\n"
        f"[load_run_exporter_class(name) for name in {sorted(BUILTIN)!r}]\n"
        "sys.exit(' '.join(name for name in ('mlflow', 'wandb', 'pyarrow', 'inspect_ai') if name in sys.modules))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.stderr.strip() == ""


class PlanStandIn:
    """The parts of a plan that the command reads."""

    def __init__(self, cwd: Path, exports: dict[str, dict[str, Any]]) -> None:
        self.cwd = str(cwd)
        self.config = load(config()).config
        self.benchmarks = [
            BenchmarkPlan(
                name="bench",
                slug="bench",
                run_id="r",
                shard_sizes=[4, 4],
                source_digest="s",
                inventory_digest="i",
                export=exports,
            )
        ]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "run"
    root.mkdir()
    (root / "plan.json").write_text("{}")
    exports: dict[str, dict[str, Any]] = {"csv": {}, "atif": {"output_dirpath": "relative/atif", "agent_version": "1.0.0"}}
    monkeypatch.setattr(command, "read_plan", lambda _: PlanStandIn(tmp_path, exports))
    return root


def test_what_is_missing_is_made_once_with_paths_from_where_it_was_submitted(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    artifacts = merged_run(run / "bench")

    assert main([str(run)]) == 0
    assert main([str(run), "--json"]) == 0

    said = capsys.readouterr().out
    assert "bench: Export csv: succeeded" in said
    assert {entry["message"] for entry in json.loads(said[said.index("[\n") :])} == {"already exported"}
    assert (tmp_path / "relative" / "atif" / "manifest.jsonl").is_file()
    assert [event.event for event in read_events(artifacts.exports)] == ["started", "succeeded"] * 2


def test_an_export_that_fails_is_told_beside_the_others(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    merged_run(run / "bench")
    (tmp_path / "relative").write_text("in the way")

    assert main([str(run)]) == 1

    said = capsys.readouterr().out
    assert "bench: Export csv: succeeded" in said
    assert "bench: Export atif: failed" in said


def test_a_run_that_is_not_merged_has_nothing_to_export(run: Path) -> None:
    with pytest.raises(IncompleteError, match="not merged yet: bench"):
        main([str(run)])


def test_a_run_takes_no_other_setting(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(run), "--session-id", "s"])

    assert ended.value.code == 2
    assert "takes no other setting" in capsys.readouterr().err
