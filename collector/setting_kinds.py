"""Kinds of numbers that a setting can be, for every model of settings."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Discriminator, Field, Tag


def refuse_bool(value: Any) -> Any:
    """``value``, which is a number. Raises ValueError for true and false, which pydantic takes for 1 and 0."""
    if isinstance(value, bool):
        raise ValueError("must be a number, not true or false")  # noqa: TRY004 - pydantic turns ValueError into its own
    return value


#: Tasks have no larger numbers, and nobody has more processors, nodes or attempts.
_MOST: Final = (1 << 31) - 1
#: More repeats of one task would be prepared for hours before anybody is asked.
_MOST_REPEATS: Final = 1_000_000
Count = Annotated[int, BeforeValidator(refuse_bool), Field(ge=1, le=_MOST)]
Seconds = Annotated[float, BeforeValidator(refuse_bool), Field(gt=0, allow_inf_nan=False)]


_Repeat = Annotated[int, BeforeValidator(refuse_bool), Field(ge=1, le=_MOST_REPEATS)]


def _once(value: Any) -> Any:
    return 1 if value is None else value


def _kind_of_repeats(value: Any) -> str:
    return "map" if isinstance(value, dict) else "number"


#: A number, or one for each agent of NeMo Gym. Told apart by its form, so that an error is about that form alone.
Repeats = Annotated[
    Annotated[_Repeat, Tag("number")] | Annotated[dict[str, _Repeat], Tag("map")],
    Discriminator(_kind_of_repeats),
    BeforeValidator(_once),
]
