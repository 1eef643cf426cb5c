"""The YAML that people write, as plain data. Needs no Hydra, which takes a tenth of a second to import."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

from collector.errors import ConfigError, NotFoundError, kind_of

#: A submit YAML is written by people; more than this is another kind of file.
_SIZE_LIMIT: Final = 4 << 20
#: Values after aliases are followed; an alias that contains itself or doubles again and again exceeds it.
_NODE_LIMIT: Final = 200_000
#: What OmegaConf takes for a value that is not there yet.
_MISSING: Final = "???"


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in ``path``. Raises NotFoundError without a file, ConfigError for no mapping, what ``kind_of`` says."""
    try:
        with path.open("rb") as file:
            found = file.read(_SIZE_LIMIT + 1)
        if len(found) > _SIZE_LIMIT:
            raise ConfigError(f"the file is larger than {_SIZE_LIMIT >> 20} MiB.", "Name the submit YAML.", path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFoundError("there is no such file.", "Check the path of the YAML file.", path) from error
    except OSError as error:
        what = f"cannot be read: {(error.strerror or str(error)).lower()}."
        # A directory is a slip of whoever named it; anything else is its owner's or the disk's.
        kind = ConfigError if isinstance(error, IsADirectoryError) else kind_of(error)
        raise kind(what, "Check the path of the YAML file.", path) from error
    data = _parsed(found, path)
    if data is None:
        raise ConfigError("the file is empty.", "It needs compute, driver and job.", path)
    if not isinstance(data, dict):
        raise ConfigError(f"a {type(data).__name__} at the top level.", "It needs the keys compute, driver and job.", path)
    if _node_count(data) > _NODE_LIMIT:
        raise ConfigError("an alias contains itself, or aliases multiply without end.", "Write the values out.", path)
    if (text := _not_utf8(data)) is not None:
        raise ConfigError(f"{text!a:.60} holds a lone surrogate, which is no UTF-8.", "Write another character.", path)
    return data


def _parsed(found: bytes, path: Path) -> Any:
    try:
        # utf-8-sig: editors on Windows put a byte order mark in front.
        return yaml.load(found.decode("utf-8-sig"), _strict_loader())  # noqa: S506 - OmegaConf's loader constructs plain data only
    except UnicodeDecodeError as error:
        raise ConfigError(f"not UTF-8 text (byte {error.start}).", "Name the submit YAML.", path) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"not valid YAML: {_yaml_problem(error)}.", where=path) from error
    except RecursionError as error:
        raise ConfigError("it is nested too deeply to be read.", "Write fewer levels.", path) from error
    except ValueError as error:
        # Of a number with thousands of digits, say.
        raise ConfigError(f"it holds a value that cannot be read: {one_line(error)}.", where=path) from error


def is_literal(value: Any) -> bool:
    """Whether plain data says what it means: composing it, without overrides, would give the same."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and is_literal(part) for key, part in value.items())
    if isinstance(value, list):
        return all(map(is_literal, value))
    if isinstance(value, str):
        return "$" not in value and value != _MISSING
    return value is None or isinstance(value, bool | int | float)


def _strict_loader() -> Any:
    """OmegaConf's loader: no duplicate keys, no dates, floats as in YAML 1.2."""
    from omegaconf._utils import get_yaml_loader  # noqa: PLC0415 - OmegaConf.load would hide the mark of an error

    return get_yaml_loader()


def _not_utf8(data: Any) -> str | None:
    """A text in ``data`` that no file can be written with; None when there is none."""
    parts = [data]
    # It grows while it is gone through.
    for part in parts:
        if isinstance(part, dict):
            parts.extend([*part, *part.values()])
        elif isinstance(part, list):
            parts.extend(part)
        elif isinstance(part, str) and not part.isascii() and any("\ud800" <= sign <= "\udfff" for sign in part):
            return part
    return None


def _node_count(data: Any) -> int:
    count, open_nodes = 0, [data]
    while open_nodes and count <= _NODE_LIMIT:
        node = open_nodes.pop()
        count += 1
        if isinstance(node, dict):
            open_nodes.extend(node.values())
        elif isinstance(node, list):
            open_nodes.extend(node)
    return count


def _yaml_problem(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {one_line(error.problem or error.context or 'cannot be read')}"
    return one_line(error)


def one_line(problem: object) -> str:
    """``problem`` in one line."""
    return " ".join(str(problem).split())
