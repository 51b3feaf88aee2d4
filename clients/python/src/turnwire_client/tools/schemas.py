"""JSON Schemas of type hints, and values of these types from JSON.

Supported are str, int, float, bool, None, Any, Literal, Enum, list, Sequence, dict with str keys, dataclasses,
TypedDict, unions of these, and Annotated with a text, which becomes the description.
"""

import dataclasses
import enum
import types
from collections.abc import Mapping, Sequence
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

MAX_DEPTH = 8
"""Types within types, so that a type that holds itself is refused."""

_SIMPLE: Mapping[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    None: {"type": "null"},
    Any: {},
}
_LISTS = (list, Sequence)
_DICTS = (dict, Mapping)


def schema_of(hint: Any, place: str, depth: int = 0) -> dict[str, Any]:  # noqa: PLR0911 - one for each kind of type
    """Returns the JSON Schema of a type.

    Args:
        hint: The type.
        place: What has it, for errors, such as "city" or "trip.days".
        depth: How many types it is within.

    Raises:
        TypeError: the type, or one within it, has no schema; the text names the place.
    """
    if depth > MAX_DEPTH:
        raise TypeError(f"{place}: more than {MAX_DEPTH} types within each other")
    hint = _bare(hint)
    try:
        if hint in _SIMPLE:
            return dict(_SIMPLE[hint])
    except TypeError:  # a hint that cannot be hashed
        raise TypeError(f"{place}: {hint!r} is no type") from None
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        text = next((note for note in arguments[1:] if isinstance(note, str)), "")
        schema = schema_of(arguments[0], place, depth)
        return {**schema, "description": text} if text else schema
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [schema_of(one, place, depth + 1) for one in arguments]}
    if origin in _LISTS or hint in _LISTS:
        items = {"items": schema_of(arguments[0], f"{place}[]", depth + 1)} if arguments else {}
        return {"type": "array", **items}
    if origin in _DICTS or hint in _DICTS:
        return _mapping(arguments, place, depth)
    if isinstance(hint, type):
        return _of_class(hint, place, depth)
    raise TypeError(f"{place}: {hint!r} has no JSON Schema")


def object_schema(fields: Mapping[str, Any], required: Sequence[str], place: str, depth: int = 0) -> dict[str, Any]:
    """Returns the schema of an object with these properties and no others. Raises as `schema_of`."""
    within = f"{place}." if place else ""
    properties = {name: schema_of(hint, f"{within}{name}", depth + 1) for name, hint in fields.items()}
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def value_of(hint: Any, value: Any, place: str) -> Any:  # noqa: PLR0911 - one for each kind of type
    """Returns a JSON value as a value of a type.

    Raises:
        ValueError: it is none of that type; the text names the place.
    """
    hint = _bare(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return value_of(arguments[0], value, place)
    if origin in (Union, types.UnionType):
        return _of_union(arguments, value, place)
    if origin is Literal:
        _check(any(value == one and type(value) is type(one) for one in arguments), value, hint, place)
    elif hint in (None, type(None)):
        _check(value is None, value, hint, place)
    elif hint in (int, float):
        fits = isinstance(value, int) and not isinstance(value, bool)
        fits = fits or (isinstance(value, float) and (hint is float or value.is_integer()))
        _check(fits, value, hint, place)
        return hint(value)
    elif hint in (str, bool):
        _check(isinstance(value, hint), value, hint, place)
    elif origin in _LISTS or hint in _LISTS:
        _check(isinstance(value, list), value, hint, place)
        return [value_of(arguments[0], one, f"{place}[{i}]") for i, one in enumerate(value)] if arguments else value
    elif origin in _DICTS or hint in _DICTS:
        _check(isinstance(value, dict), value, hint, place)
        return (
            {key: value_of(arguments[1], one, f"{place}.{key}") for key, one in value.items()} if arguments else value
        )
    elif isinstance(hint, type) and hint is not Any:
        return _as_class(hint, value, place)
    return value


def _bare(hint: Any) -> Any:
    """Returns a type without the words of TypedDict about being required."""
    return get_args(hint)[0] if get_origin(hint) in (Required, NotRequired) else hint


def _mapping(arguments: tuple[Any, ...], place: str, depth: int) -> dict[str, Any]:
    if arguments and arguments[0] is not str:
        raise TypeError(f"{place}: the keys of a dict are str in JSON, not {arguments[0]!r}")
    values = {"additionalProperties": schema_of(arguments[1], f"{place}{{}}", depth + 1)} if arguments else {}
    return {"type": "object", **values}


def _of_class(kind: type, place: str, depth: int) -> dict[str, Any]:
    if issubclass(kind, enum.Enum):
        values = [one.value for one in kind]
        if not all(isinstance(value, str | int | float | bool) for value in values):
            raise TypeError(f"{place}: the values of {kind.__name__} are not all texts or numbers")
        return {"enum": values}
    if is_typeddict(kind):
        required = sorted(getattr(kind, "__required_keys__", ()))
        return object_schema(get_type_hints(kind, include_extras=True), required, place, depth)
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind, include_extras=True)
        taken = [one for one in dataclasses.fields(kind) if one.init]
        required = [one.name for one in taken if _has_no_default(one)]
        return object_schema({one.name: hints[one.name] for one in taken}, required, place, depth)
    raise TypeError(f"{place}: {kind.__name__} has no JSON Schema")


def _as_class(kind: type, value: Any, place: str) -> Any:
    if issubclass(kind, enum.Enum):
        found = next((one for one in kind if one.value == value), None)
        _check(found is not None, value, kind, place)
        return found
    _check(isinstance(value, dict), value, kind, place)
    hints = get_type_hints(kind, include_extras=True)
    if unknown := value.keys() - hints.keys():
        raise ValueError(f"{place} has no {sorted(unknown)[0]!r}")
    given = {name: value_of(hints[name], one, f"{place}.{name}") for name, one in value.items()}
    if is_typeddict(kind):
        missing = sorted(getattr(kind, "__required_keys__", frozenset()) - given.keys())
    else:
        taken: Any = kind
        missing = [one.name for one in dataclasses.fields(taken) if _has_no_default(one) and one.name not in given]
    if missing:
        raise ValueError(f"{place} lacks {missing[0]!r}")
    return given if is_typeddict(kind) else kind(**given)


def _of_union(arguments: tuple[Any, ...], value: Any, place: str) -> Any:
    problems = []
    for one in arguments:
        try:
            return value_of(one, value, place)
        except ValueError as problem:
            problems.append(str(problem))
    raise ValueError("; or ".join(problems))


def _has_no_default(field: "dataclasses.Field[Any]") -> bool:
    return field.init and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _check(holds: bool, value: Any, hint: Any, place: str) -> None:
    if not holds:
        raise ValueError(f"{place} is not {getattr(hint, '__name__', None) or hint}: {str(value)[:100]!r}")
