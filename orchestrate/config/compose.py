"""The user's YAML file and command-line overrides, composed by Hydra into plain data. Writes nothing, not even ``outputs/``."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, cast
from warnings import catch_warnings, filterwarnings

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import GrammarParseError, OmegaConfBaseException, UnsupportedInterpolationType

from collector.errors import ConfigError
from orchestrate.config.yaml_file import one_line, read_yaml

_STORE_NAME = "_gym_eval_submit"
_MERGING: Final = "Error merging override "
#: OmegaConf's words for a reference that leads nowhere, and what says the same to the person who wrote it.
_UNSET: Final = re.compile(r"Environment variable '(.+?)' not found")
#: Hydra's words for a change of a key that is not there.
_NO_SUCH: Final = re.compile(r"Could not override '(.+?)'\. To append to your config use \+(.*?)\.?(?: |$)")
_NO_KEY: Final = re.compile(r"Interpolation key '(.+?)' not found")


def compose_file(path: Path, overrides: Sequence[str]) -> dict[str, Any]:
    """The file's data with ``overrides`` (``a.b=c``, ``+a=1``, ``++a=1``, ``~a``) applied and every ``${...}`` resolved.

    Raises ConfigError, in one line, with Hydra's own hint where it has one.
    """
    return compose_data(read_yaml(path), overrides, folder=path.absolute().parent, where=path)


def compose_data(data: dict[str, Any], overrides: Sequence[str], *, folder: Path, where: Path | str) -> dict[str, Any]:
    """``data`` with ``overrides`` applied and every ``${...}`` resolved; ``defaults`` are looked for in ``folder``."""
    GlobalHydra.instance().clear()
    try:
        ConfigStore.instance().store(_STORE_NAME, data)
        # The file's folder is searched too, so that a `defaults` list finds its neighbours.
        with catch_warnings(), initialize_config_dir(config_dir=str(folder), version_base="1.3", job_name="gym"):
            # Three lines about an order that is the natural one: what the file says itself wins.
            filterwarnings("ignore", ".*Defaults list is missing")
            composed: DictConfig = compose(config_name=_STORE_NAME, overrides=list(overrides))
        plain = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
    except RecursionError as error:
        raise ConfigError(
            "defaults lead back to where they are named, or values are nested too deeply.", where=where
        ) from error
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(_key_problem(error, data) or _hydra_problem(error), where=where) from error
    return cast("dict[str, Any]", plain)


def _hydra_problem(error: Exception) -> str:
    """Hydra's own message without what does not apply: nothing here can be swept over."""
    text = one_line(error)
    if isinstance(error, OverrideParseException):
        key, equals, _ = str(error.override).partition("=")
        if not equals and not key.startswith("~"):
            return f"{key!r} is no override. An override is key=value, +key=value, ++key=value or ~key."
        text = f"override {error.override!r} cannot be read: {text}"
        # The shell took the quotes that the text was given.
        text = (
            f"{text.partition(' See https')[0].rstrip('.')}. A text with braces, commas or colons keeps quotes: \"{key}='...'\""
        )
    if text.startswith(_MERGING):
        return _merge_problem(text.removeprefix(_MERGING), error.__cause__)
    if (told := _reference_problem(error, text)) is not None:
        return told
    text = text.partition(" 3. To sweep over it")[0].partition(" object_type=")[0]
    if isinstance(error, GrammarParseError | UnsupportedInterpolationType):
        text = f"{text.rstrip('.')}: a ${{...}} that is meant for a shell is written \\${{...}}"
    return text if text.endswith((".", "!")) else f"{text}."


def _key_problem(error: Exception, data: dict[str, Any]) -> str | None:
    """What to write in place of a changed key that the file does not have; None for another error, or when none is near."""
    if (asked := _NO_SUCH.match(one_line(error))) is None:
        return None
    node: Any = data
    parts = asked[1].split(".")
    for place, part in enumerate(parts):
        if not isinstance(node, dict):
            return None
        keys = cast("dict[str, Any]", node)
        if part not in keys:
            if not (near := difflib.get_close_matches(part, map(str, keys), n=1)):
                return None
            meant = ".".join([*parts[:place], *near, *parts[place + 1 :]])
            return f"there is no key {asked[1]!r} to change. Did you mean {meant!r}? To add a new one use +{asked[2]}."
        node = keys[part]
    return None


def _merge_problem(override: str, cause: BaseException | None) -> str:
    """What Hydra says only in the cause of its error: why the value does not fit what the file has there."""
    why = one_line(cause or "it does not fit what is there").partition(" full_key")[0].rstrip(".")
    if "DictConfig" in why and "ListConfig" in why:
        here, there = ("a list", "keys with values") if override.endswith("]") else ("keys with values", "a list")
        why = f"it gives {here} where the file has {there}"
    return f"override {override!r} cannot be used: {why}."


def _reference_problem(error: Exception, text: str) -> str | None:
    """What is wrong with a ``${...}``, under the key that it stands in; None for another error."""
    where = f"{key}: " if (key := getattr(error, "full_key", None)) else ""
    if (unset := _UNSET.search(text)) is not None:
        name = unset[1]
        return f"{where}there is no variable {name}. Export it, or write a default: ${{oc.env:{name},DEFAULT}}."
    if (missing := _NO_KEY.search(text)) is not None:
        return f"{where}${{{missing[1]}}}: there is no such key in this file."
    return None
