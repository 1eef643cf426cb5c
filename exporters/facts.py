"""What the companions of a finished run say about it: its id and who answered."""

from __future__ import annotations

from dataclasses import dataclass

from collector.artifacts import RunArtifacts
from collector.formats.manifest import read_manifest
from merge.inputs.identity import agent_name
from merge.publication.receipt import read_receipt


@dataclass(frozen=True, slots=True)
class RunFacts:
    """None: the run does not say."""

    run_id: str | None = None
    benchmark: str | None = None
    agent: str | None = None


def read_run_facts(artifacts: RunArtifacts) -> RunFacts:
    """The facts of a projection by its receipt, of a single run by its manifest. Raises CorruptArtifactError."""
    receipt = read_receipt(artifacts.receipt)
    if receipt is not None:
        return RunFacts(receipt.run_id, receipt.benchmark, receipt.agent)
    manifest = read_manifest(artifacts.manifest)
    if manifest is not None:
        return RunFacts(manifest.run_id, manifest.benchmark, agent_name(manifest))
    return RunFacts()
