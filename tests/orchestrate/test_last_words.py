"""A run that did not complete says why, in the words of its jobs."""

from __future__ import annotations

from pathlib import Path

from orchestrate.last_words import last_words
from tests.orchestrate.project import Project


def test_a_wait_for_a_service_that_cannot_start_tells_its_last_words(tmp_path: Path) -> None:
    project = Project(tmp_path / "user", {"type": "local"})
    project.config["services"]["policy"]["command"] = ["bash", "-c", "echo no such checkpoint; exit 3"]
    project.benchmark("math", tasks=2)

    said = project.submit("--wait", code=6)

    assert "ended with exit code 3" in said
    assert "no such checkpoint" in said
    assert "gym eval logs" in said


def test_equal_reasons_are_said_once_and_a_job_that_went_on_has_none(tmp_path: Path) -> None:
    for name, text in (("a", "gym eval: full\n"), ("b", "gym eval: full\n"), ("c", "gym eval: cut\n12 of 12 done\n")):
        (tmp_path / f"job-{name}.log").write_text(text)

    assert last_words(tmp_path) == ["full"]
