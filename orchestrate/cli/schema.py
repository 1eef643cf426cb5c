"""``gym eval schema``: the JSON Schema of the submit YAML, for editors that complete and check it."""

from __future__ import annotations

import json

from orchestrate.cli.parser import CommandParser


def main(argv: list[str]) -> int:
    """Print the schema."""
    parser = CommandParser(
        prog="gym eval schema",
        description="Print the JSON Schema of the submit YAML. Example: gym eval schema > submit.schema.json",
    )
    parser.parse_args(argv)
    from orchestrate.config.schema import submit_schema

    print(json.dumps(submit_schema(), indent=2))
    return 0
