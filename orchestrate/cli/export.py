"""``gym eval export``: a finished run to one exporter, or the configured exports of a submitted run that did not arrive.

Order of what decides a setting: flags first, then overrides as they were written, so that an override wins over a flag
wherever it stands on the command line. Overrides keep Hydra's meaning; values of flags are taken as they are, to the byte.
"""

from __future__ import annotations

import logging
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from exporters.names import BUILTIN, DEFAULT
from orchestrate.cli.parser import CommandParser

if TYPE_CHECKING:
    from exporters.base import ExportResult

_log = logging.getLogger(__name__)
#: Flag to the key that it sets.
_KEYS: Final = {
    "rollouts": "rollouts_jsonl_fpath",
    "output_dir": "output_dirpath",
    "session_id": "session_id",
    "agent_version": "agent_version",
}


def main(argv: list[str]) -> int:
    """Export, print how it ended, and return 0 when everything arrived and 1 when not."""
    parser = _parser()
    args = parser.parse_intermixed_args(argv)
    run = _run_directory(args.tokens)
    if run is not None:
        from orchestrate.cli.export_missing import export_missing

        if len(args.tokens) > 1 or any(getattr(args, flag) is not None for flag in (*_KEYS, "format")):
            parser.error("a run directory is exported as its configuration says: it takes no other setting")
        return export_missing(run, as_json=args.json)
    name, overrides = split_tokens(args.tokens)
    name = _checked_name(parser, name, args.format)
    values = compose_settings({key: getattr(args, flag) for flag, key in _KEYS.items()}, overrides)
    result = _export(name, values)
    print(_as_json(name, result) if args.json else "\n".join(result.lines(name)))
    return 0 if result.is_success else 1


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="gym eval export",
        description="Export a finished run. Example: gym eval export atif --rollouts out/math.jsonl "
        "--output-dir out/atif --agent-version 1.0.0",
        epilog=f"Exporters: {', '.join(sorted(BUILTIN))}, and those of installed packages; the default is {DEFAULT}. "
        "Settings of an exporter are overrides as in +key=value; flags come first, so an override wins (++key=value). "
        "With the directory of a submitted run instead, its configured exports that are missing are made.",
    )
    parser.add_argument("tokens", nargs="*", metavar="[EXPORTER] OVERRIDE", help="an exporter, then its settings as +key=value")
    parser.add_argument("--rollouts", metavar="FILE", help="the run's rollouts; its companions lie beside it")
    parser.add_argument("--output-dir", metavar="DIR", help="where the exporter makes its folder")
    parser.add_argument("--session-id", metavar="TEXT", help="names the session in each trajectory")
    parser.add_argument("--agent-version", metavar="TEXT", help="the version of the agent")
    parser.add_argument("--format", metavar="EXPORTER", help="deprecated: name the exporter as the first argument")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


def split_tokens(tokens: list[str]) -> tuple[str | None, list[str]]:
    """The exporter, if the first token names one, and the overrides in the order they were written.

    EXPORTER may be left out, so the first token may be an override; it stays the first of them.
    """
    if tokens and not _is_override(tokens[0]):
        return tokens[0], tokens[1:]
    return None, tokens


def _is_override(token: str) -> bool:
    return token.startswith(("+", "~")) or "=" in token


def _run_directory(tokens: list[str]) -> Path | None:
    """The first token when it is the directory of a submitted run and not the name of an exporter."""
    if not tokens or tokens[0] in BUILTIN or tokens[0].startswith(("+", "~")):
        return None
    path = Path(tokens[0])
    is_path = "=" not in tokens[0] and ("/" in tokens[0] or path.is_dir())
    return path if (path / "plan.json").exists() or (is_path and path.is_dir()) else None


def _checked_name(parser: CommandParser, name: str | None, former: str | None) -> str:
    from collector.registry import unknown_name_hint
    from exporters.registry import EXPORTERS

    if former is not None:
        _log.warning("--format is deprecated: write 'gym eval export %s'.", former)
        if name not in (None, former):
            parser.error(f"the exporter is {name} by its name and {former} by --format")
    chosen = name or former or DEFAULT
    names = EXPORTERS.names()
    if chosen not in names:
        parser.error(f"unknown exporter {chosen!r}. {unknown_name_hint(chosen, names)}".rstrip("."))
    return chosen


def compose_settings(flags: dict[str, str | None], overrides: list[str]) -> dict[str, Any]:
    """The settings that flags and overrides give. Raises ConfigError with Hydra's own hint for an override it refuses."""
    from orchestrate.compose import compose_data

    # Hydra would read ${...} and ??? in a value; a stand-in that nobody can have written keeps it out of its sight.
    nonce = secrets.token_hex(8)
    given = {key: value for key, value in flags.items() if value is not None}
    stand_ins = {f"flag-{nonce}-{index}-": value for index, value in enumerate(given.values())}
    data = dict(zip(given, stand_ins, strict=True))
    composed = compose_data(data, overrides, folder=Path.cwd(), where="")
    return {key: _restored(value, stand_ins) for key, value in composed.items()}


def _restored(value: Any, stand_ins: dict[str, str]) -> Any:
    if isinstance(value, str):
        for stand_in, text in stand_ins.items():
            value = value.replace(stand_in, text)
        return value
    if isinstance(value, dict):
        return {key: _restored(item, stand_ins) for key, item in value.items()}
    return [_restored(item, stand_ins) for item in value] if isinstance(value, list) else value


def _export(name: str, values: dict[str, Any]) -> ExportResult:
    from collector.artifacts import RunArtifacts
    from collector.errors import ConfigError
    from exporters.direct import export_run

    rollouts = values.pop("rollouts_jsonl_fpath", None)
    if not isinstance(rollouts, str) or not rollouts.strip():
        raise ConfigError(
            "rollouts_jsonl_fpath: names the run's rollouts as text.", "Give --rollouts FILE or +rollouts_jsonl_fpath=FILE."
        )
    return export_run(name, values, RunArtifacts(Path(rollouts)))


def _as_json(name: str, result: ExportResult) -> str:
    import json

    shown = {
        "exporter": name,
        "state": result.state.value,
        "message": result.message,
        "details": result.details,
        "evidence": result.evidence,
    }
    return json.dumps(shown, indent=2, ensure_ascii=False)
