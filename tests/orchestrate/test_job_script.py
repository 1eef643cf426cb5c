"""The job script: exact text for an ordinary job, and valid shell whatever a name or a value contains."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from orchestrate.config.compute import SlurmCompute
from orchestrate.jobs.timing import warning_seconds
from slurm_templates.render import JobScript, literal_path, render_flag, render_job

GOLDEN = """\
#!/bin/bash
#SBATCH --job-name=gym-math-1f2e3d-0a1b2c3d
#SBATCH --time=0-04:00:00
#SBATCH --array=0-7%4
#SBATCH --output='/runs/a b/logs/job-%A_%a.log'
#SBATCH --requeue

# -u is left out: activation scripts of environments read variables that nobody set.
set -eo pipefail

source /opt/venv/bin/activate
module load cuda

export SUBMITIT_EXECUTOR=slurm
# exec, not srun: signals of Slurm reach the collector itself, and its exit code is the job's.
exec python3 -m orchestrate.entry '/runs/a b/jobs/x' 0 x
"""

HOSTILE = ["a b", "it's", '"quoted"', "$(touch PWN)", "`touch PWN`", "a;b&c|d", "#x", "ü", "\\", "%j", "$HOME", "*", "~"]


def test_the_script_is_exactly_this() -> None:
    script = JobScript(
        flags={
            "job-name": "gym-math-1f2e3d-0a1b2c3d",
            "account": None,
            "time": "0-04:00:00",
            "array": "0-7%4",
            "output": "/runs/a b/logs/job-%A_%a.log",
            "requeue": True,
            "exclusive": False,
            "qos": "",
        },
        setup=["source /opt/venv/bin/activate", "module load cuda"],
        command=["python3", "-m", "orchestrate.entry", "/runs/a b/jobs/x", "0", "x"],
    )

    assert render_job(script) == GOLDEN


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_value_stays_one_word(text: str, tmp_path: Path) -> None:
    script = render_job(JobScript(flags={"comment": text}, command=["printf", "%s", text]))
    path = tmp_path / "job.sh"
    path.write_text(script)

    syntax = subprocess.run(["bash", "-n", str(path)], capture_output=True, text=True, check=False)
    done = subprocess.run(["bash", str(path)], capture_output=True, text=True, check=True, cwd=tmp_path)

    assert (syntax.returncode, syntax.stderr) == (0, "")
    assert done.stdout == text
    assert [entry.name for entry in tmp_path.iterdir()] == ["job.sh"]


def test_a_line_break_cannot_end_a_directive() -> None:
    with pytest.raises(ValueError, match="one line"):
        render_flag("comment", "a\n#SBATCH --uid=0")


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, None), ("", None), (False, None), (True, "--x"), (0, "--x=0"), ("a b", "--x='a b'"), (2.5, "--x=2.5")],
)
def test_absent_values_leave_the_option_out(value: object, expected: str | None) -> None:
    assert render_flag("x", value) == expected  # pyright: ignore[reportArgumentType]


def test_a_percent_sign_in_a_path_is_no_pattern() -> None:
    assert literal_path("/runs/50%/j%j") == "/runs/50%%/j%%j"


def test_a_failing_setup_line_ends_the_job(tmp_path: Path) -> None:
    path = tmp_path / "job.sh"
    path.write_text(render_job(JobScript(flags={}, setup=["source /nowhere/activate"], command=["echo", "ran"])))

    done = subprocess.run(["bash", str(path)], capture_output=True, text=True, check=False)

    assert done.returncode != 0
    assert "ran" not in done.stdout


@pytest.mark.parametrize(("walltime_s", "expected"), [(14400, 90), (360, 90), (120, 30), (60, 15)])
def test_the_warning_leaves_time_to_work(walltime_s: int, expected: int) -> None:
    assert warning_seconds(walltime_s) == expected


def test_empty_options_of_a_site_are_absent() -> None:
    compute = SlurmCompute.model_validate({"type": "slurm", "walltime": "1:00:00", "account": "", "qos": None})

    assert (compute.account, compute.qos) == (None, None)
