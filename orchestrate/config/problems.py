"""What pydantic found wrong, as one line a problem: the key's path as the user wrote it, the reason, and the nearest name."""

from __future__ import annotations

from collections.abc import Mapping
from types import UnionType
from typing import Annotated, Any, Final, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel, Tag, ValidationError
from pydantic_core import ErrorDetails

from collector.registry import unknown_name_hint

#: Parameters of a request, which people write beside the section that they belong into.
_REQUEST_PARAMETERS: Final = frozenset(
    {"max_output_tokens", "max_tokens", "temperature", "top_p", "seed", "reasoning", "tools", "tool_choice", "instructions"}
)
#: What pydantic says of a value's form in words of Python.
_FORMS: Final[Mapping[str, str]] = {
    "dict_type": "must be keys with values",
    "model_type": "must be keys with values",
    "model_attributes_type": "must be keys with values",
    "list_type": "must be a list",
    "path_type": "must be a path, written as text",
    "string_type": "must be a text",
}
_REQUEST: Final = "responses_create_params"


class _Place(NamedTuple):
    """Where an error is: the path as written, and the names that would have been valid there."""

    path: str
    names: list[str]


def problems_of(error: ValidationError, model: type[BaseModel], *, prefix: str = "") -> list[str]:
    """Each problem of ``error`` in the order of the file; ``prefix`` is the path of ``model`` in it."""
    found = [_problem(details, model, prefix) for details in error.errors(include_url=False, include_input=False)]
    return list(dict.fromkeys(found))


def _problem(details: ErrorDetails, model: type[BaseModel], prefix: str) -> str:
    place = _locate(model, details["loc"], prefix)
    context: Mapping[str, Any] = details.get("ctx", {})
    match details["type"]:
        case "extra_forbidden":
            key = place.path.rpartition(".")[2]
            if key in _REQUEST_PARAMETERS and _REQUEST in place.names:
                return f"{place.path}: unknown key. Write it in {_REQUEST}"
            return f"{place.path}: unknown key. {unknown_name_hint(key, place.names)}".rstrip(".")
        case "missing":
            return f"{place.path}: is missing"
        case "union_tag_invalid":
            choices = [tag.strip(" '") for tag in context["expected_tags"].split(",")]
            return f"{place.path}.type: unknown type. {unknown_name_hint(context['tag'], choices)}".rstrip(".")
        case "union_tag_not_found":
            return f"{place.path}.type: is missing"
        case kind:
            message = _FORMS.get(kind) or details["msg"].removeprefix("Value error, ")
            return f"{place.path}: {message[:1].lower()}{message[1:]}"


def _locate(model: type[BaseModel], loc: tuple[int | str, ...], prefix: str) -> _Place:
    """Walk ``loc`` through the annotations; tags of unions, which pydantic puts into it, are not part of the path."""
    path, names = prefix, list[str]()
    annotation: Any = model
    for item in loc:
        annotation = _plain(annotation)
        members = _models_of_union(annotation)
        if members and isinstance(item, str):
            annotation = members.get(item, annotation)
            continue
        if isinstance(item, int):
            path = f"{path}[{item}]"
        elif item != "[key]":
            path = f"{path}.{item}" if path else item
        names, annotation = _inside(annotation, item)
    return _Place(path or "the file", names)


def _inside(annotation: Any, item: int | str) -> tuple[list[str], Any]:
    """The names valid inside ``annotation`` and the annotation of its member ``item``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        fields = annotation.model_fields
        found = fields.get(item) if isinstance(item, str) else None
        return sorted(fields), None if found is None else found.annotation
    arguments = get_args(annotation)
    return [], arguments[-1] if arguments else None


def _plain(annotation: Any) -> Any:
    """``annotation`` without ``Annotated`` and without ``| None``."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in {Union, UnionType}:
        real = [member for member in get_args(annotation) if member is not type(None)]
        if len(real) == 1:
            return _plain(real[0])
    return annotation


def _models_of_union(annotation: Any) -> dict[str, Any]:
    """The members of a union that a ``type`` field or their form tells apart, by that tag."""
    if get_origin(annotation) not in {Union, UnionType}:
        return {}
    members = get_args(annotation)
    models = [member for member in members if isinstance(member, type) and issubclass(member, BaseModel)]
    by_form = {mark.tag: _plain(member) for member in members for mark in _marks(member) if isinstance(mark, Tag)}
    return {tag: member for member in models for tag in _tags(member)} | by_form


def _marks(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()


def _tags(model: type[BaseModel]) -> tuple[str, ...]:
    field = model.model_fields.get("type")
    return get_args(field.annotation) if field is not None and get_origin(field.annotation) is Literal else ()
