"""``gym eval merge``: shards become one verified file; ``--check`` holds such a file against its shards."""

from __future__ import annotations

from pathlib import Path

from orchestrate.cli.parser import CommandParser
from orchestrate.run_words import RUN_WORDS


def main(argv: list[str]) -> int:
    """Merge as ``aggregate`` does, or check and return 0 when the file is whole and says what its inputs say.

    Raises NotFoundError (3) when there is no receipt, RefusedError (4) for a damaged or stale projection.
    """
    args = _parser().parse_args(argv)
    from collector.errors import RequestError

    if args.check is not None:
        if args.inputs or args.output:
            raise RequestError("--check takes one published file and no inputs.", "Its receipt names them.")
        return _check(_merged(args.check), as_json=args.json)
    if not args.inputs or args.output is None:
        raise RequestError("an input and an output are needed.", "Usage: gym eval merge RUN -o FILE.jsonl.")
    from merge.command import merge_paths
    from merge.inputs.sources import find_runs
    from orchestrate.cli.aggregate import check_merge_place, input_of
    from orchestrate.cli.merge_text import tell
    from orchestrate.counted_under import retry_of
    from orchestrate.output_place import check_place

    check_place(args.output)
    inputs = [input_of(word) for word in args.inputs]
    check_merge_place(args.output, inputs)
    retry = retry_of(find_runs(inputs))
    return tell(merge_paths(inputs, args.output, allow_partial=args.allow_partial, retry=retry), as_json=args.json)


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="gym eval merge",
        description="Merge shards into one file, or check a merged one against its shards. "
        "Example: gym eval merge --check runs/math-1f2e3d4c/math/rollouts.jsonl",
    )
    parser.add_argument("inputs", nargs="*", metavar="RUN", help=f"{RUN_WORDS}, or a glob")
    parser.add_argument("-o", "--output", type=Path, metavar="PATH", help="the merged file")
    parser.add_argument("--check", metavar="RUN", help="a benchmark or its merged file: is it whole, and what its inputs say?")
    parser.add_argument(
        "--allow-partial",
        action="store_true",
        help="merge what there is; the output is labelled and named <stem>.partial.jsonl",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


def _merged(word: str) -> Path:
    """The merged file that ``word`` means: itself, there or lost, or that of the benchmark with this name or directory."""
    from collector.artifacts import RunArtifacts
    from orchestrate.named import named, one_result

    path = Path(word)
    if path.suffix == ".jsonl" or path.is_file() or not path.name or RunArtifacts(path).receipt.exists():
        return path
    return one_result(named(word)).artifacts.rollouts


def _check(path: Path, *, as_json: bool) -> int:
    from collector.artifacts import RunArtifacts
    from collector.errors import NotFoundError, RefusedError
    from merge.publication.projection_check import ProjectionState, check_projection

    if not path.name:
        raise NotFoundError("a directory is no merged file.", "Name the rollouts file in it.", path)
    found = check_projection(RunArtifacts(path), reads_rows=True)
    if as_json:
        import json

        print(json.dumps({"path": str(path), "state": found.state.value, "reason": found.reason}))
    match found.state:
        case ProjectionState.VERIFIED:
            if not as_json:
                print(f"verified: {found.reason[:-1]}, each row read there too.")
            return 0
        case ProjectionState.ABSENT:
            raise NotFoundError(found.reason, "Name a file that gym eval merge or aggregate wrote.", path)
        case ProjectionState.STALE | ProjectionState.DAMAGED:
            raise RefusedError(f"{found.state}: {found.reason}", "Merge again.", path)
        case ProjectionState.INPUT_DAMAGED:
            cure = "The merged file is as it was published; restore the input."
            raise RefusedError(f"{found.state}: {found.reason}", cure, path)
