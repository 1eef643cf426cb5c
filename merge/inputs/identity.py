"""Whether inputs belong together: one experiment, one run, each shard once, none missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from collector.artifacts import RunArtifacts
from collector.errors import IdentityError, RefusedError
from collector.formats.differences import differences, short
from collector.formats.manifest import Manifest, ShardPlace
from collector.formats.moves import read_moved
from collector.text.counted import agreeing, counted

#: Field differences shown before the list is cut.
_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Inputs:
    """Shards of one benchmark in the order of their index, and the indices that are not among them."""

    shards: tuple[tuple[RunArtifacts, Manifest], ...]
    missing: tuple[int, ...]
    #: Rollouts of the whole benchmark, those of missing shards included.
    expected: int

    @property
    def artifacts(self) -> list[RunArtifacts]:
        return [artifacts for artifacts, _ in self.shards]

    @property
    def missing_rollouts(self) -> int:
        """How many rollouts the missing shards hold together."""
        return self.expected - sum(manifest.expected - len(read_moved(artifacts)) for artifacts, manifest in self.shards)


def bind_inputs(shards: Sequence[tuple[RunArtifacts, Manifest]], *, allow_partial: bool = False) -> Inputs:
    """``shards`` as the parts of one benchmark. Raises IdentityError for another experiment, RefusedError for a wrong set."""
    (first, reference), *others = shards
    for artifacts, manifest in others:
        _check_same_experiment(first, reference, artifacts, manifest)
    if reference.shard is None:
        if others:
            names = ", ".join(str(artifacts.rollouts) for artifacts, _ in shards)
            raise RefusedError(f"several whole runs of one experiment: {names}.", "Name one of them.")
        return Inputs(tuple(shards), (), reference.expected)
    return _bind_places(shards, reference.shard, allow_partial=allow_partial)


def _bind_places(shards: Sequence[tuple[RunArtifacts, Manifest]], place: ShardPlace, *, allow_partial: bool) -> Inputs:
    _check_one_set(shards, place)
    indices = Counter(_index(manifest) for _, manifest in shards)
    doubled = [
        f"shard {_index(manifest)} at {artifacts.rollouts}" for artifacts, manifest in shards if indices[_index(manifest)] > 1
    ]
    if doubled:
        raise RefusedError(f"the same shard more than once: {'; '.join(doubled)}.", "Name each shard once.")
    # Shards beyond the count were planned later, for what the first ones left undone.
    missing = tuple(sorted(set(range(max(place.count, max(indices) + 1))) - set(indices)))
    if missing and not allow_partial:
        raise RefusedError(
            f"{counted(len(missing), 'shard', of=place.count)} {agreeing(len(missing), 'are')} missing: {_ranges(missing)}.",
            "Name them too, or merge with --allow-partial, which labels the output.",
        )
    inputs = Inputs(tuple(sorted(shards, key=lambda shard: _index(shard[1]))), missing, place.whole_expected)
    if inputs.missing_rollouts < 0 or bool(inputs.missing_rollouts) != bool(missing):
        present = place.whole_expected - inputs.missing_rollouts
        raise RefusedError(f"the shards hold {counted(present, 'rollout')} and the benchmark has {place.whole_expected}.")
    return inputs


def _check_same_experiment(first: RunArtifacts, reference: Manifest, artifacts: RunArtifacts, manifest: Manifest) -> None:
    found = [f"the {name}" for name, differs in _facts(reference, manifest) if differs]
    found += [
        f"{key}: {short(theirs)} and {short(ours)}" for key, theirs, ours in differences(reference.config, manifest.config)
    ]
    if not found and reference.config_digest != manifest.config_digest:
        found = ["the configuration's digest"]
    if found:
        shown = "; ".join(found[:_SHOWN]) + ("; ..." if len(found) > _SHOWN else "")
        raise IdentityError(
            f"another experiment than {first.rollouts}: {shown}.", "Merge only shards of one run.", artifacts.rollouts
        )


def _facts(reference: Manifest, manifest: Manifest) -> list[tuple[str, bool]]:
    return [
        (f"benchmark ({reference.benchmark} and {manifest.benchmark})", reference.benchmark != manifest.benchmark),
        (f"run ({reference.run_id} and {manifest.run_id})", reference.run_id != manifest.run_id),
        ("dataset's content", reference.source_digest != manifest.source_digest),
    ]


def _check_one_set(shards: Sequence[tuple[RunArtifacts, Manifest]], place: ShardPlace) -> None:
    for artifacts, manifest in shards:
        other = manifest.shard
        if other is None or other.model_copy(update={"index": place.index}) != place:
            theirs = "a whole run" if other is None else f"one of {_said(other)}"
            raise RefusedError(
                f"{theirs}, among {_said(place)}, or of another inventory.",
                "Merge only the shards of one plan.",
                artifacts.rollouts,
            )


def _said(place: ShardPlace) -> str:
    return f"{counted(place.count, 'shard')} of {counted(place.whole_expected, 'rollout')}"


def _index(manifest: Manifest) -> int:
    return -1 if manifest.shard is None else manifest.shard.index


def _ranges(indices: Sequence[int]) -> str:
    parts: list[str] = []
    begin = previous = indices[0]
    for index in [*indices[1:], -1]:
        if index == previous + 1:
            previous = index
            continue
        parts.append(str(begin) if begin == previous else f"{begin}-{previous}")
        begin = previous = index
    return ", ".join(parts)


def agent_name(manifest: Manifest) -> str:
    """How published files call who answered: the agent's type, or the servers' agents where those of a NeMo Gym answered."""
    agent = manifest.config.get("agent")
    if isinstance(agent, dict) and isinstance(names := agent.get("agents"), list) and names:
        return " + ".join(map(str, names))
    name = agent.get("type") if isinstance(agent, dict) else None
    return name if isinstance(name, str) else manifest.benchmark
