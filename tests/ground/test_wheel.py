"""The wheel that users install works without the checkout: commands, templates and a whole run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.model_server import ModelServer

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with nothing but the wheel and what it asks for."""
    directory = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(directory), str(ROOT)]
    subprocess.run(build, check=True, cwd=directory, timeout=180)
    (wheel,) = directory.glob("gym_eval-*.whl")
    subprocess.run([sys.executable, "-m", "venv", str(directory / "venv")], check=True, timeout=60)
    install = [str(directory / "venv" / "bin" / "pip"), "install", "--quiet", "--retries", "5", str(wheel)]
    subprocess.run(install, check=True, cwd=directory, timeout=300)
    return directory / "venv" / "bin"


def run(installed: Path, *command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": f"{installed}:{os.environ['PATH']}", "HOME": str(cwd)}
    return subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize("program", ["gym", "gym-eval"])
def test_both_commands_say_what_they_are(installed: Path, tmp_path: Path, program: str) -> None:
    done = run(installed, str(installed / program), "--version", cwd=tmp_path)

    assert (done.returncode, done.stdout.split()[0]) == (0, "gym-eval")


def test_a_submitted_benchmark_runs_from_the_wheel_alone(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text('{"question": "2+3? [[answer: 5]]", "expected_answer": 5}\n')
    with ModelServer(tmp_path) as server:
        (tmp_path / "eval.yaml").write_text(
            f"""
services: {{model: {{type: external, url: "{server.base_url}", served_model_name: {server.model}}}}}
compute: {{here: {{type: local}}}}
driver:
  policy_model: model
  benchmarks:
    sums:
      run: {{input_jsonl_fpath: tasks.jsonl, prompt_config: {{user: "{{question}}"}}, verifier: {{type: number}}}}
job: {{output_path: runs}}
export: {{atif: {{agent_version: "1.0.0"}}}}
"""
        )

        done = run(installed, str(installed / "gym"), "eval", "submit", "eval.yaml", "--wait", cwd=tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    (merged,) = tmp_path.glob("runs/*/sums/rollouts.jsonl")
    assert json.loads(merged.read_text())["reward"] == 1.0


def test_the_job_script_is_part_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    done = run(
        installed, str(installed / "python"), "-c", "import slurm_templates.render as r; print(r.__file__)", cwd=tmp_path
    )

    templates = Path(done.stdout.strip()).parent
    assert "site-packages" in str(templates)
    assert (templates / "job.sh.j2").is_file()
