"""The keywords of JSON Schema with a bounded cost.

Those without such a bound (patterns that may take too long, `unevaluatedProperties`, `unevaluatedItems`) are left to
the tool, which checks its own input anyway.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from typing import Any

from turnwire.core.schemas.patterns import regex_matches
from turnwire.core.schemas.steps import current

_NOT_CHECKED = ("unevaluatedProperties", "unevaluatedItems", "format")

_COMPARED_IN_A_STEP = 4000
"""Characters that a pattern compares in ten microseconds."""

_WRITTEN_IN_A_STEP = 400
"""Characters of a problem that are written in ten microseconds."""

_SEARCH_STEPS = 500
"""Of a reference to an anchor: the library searches the whole schema for it each time."""

Keyword = Callable[[Any, Any, Any, Any], Iterable[Any] | None]


@lru_cache
def bounded_validator(kind: Any, *, is_foreign: bool = True) -> Any:
    """Returns the validator class of a draft with keywords whose cost is bounded.

    Args:
        kind: The library's class.
        is_foreign: False for the draft's own schema, whose references are cheap.
    """
    from jsonschema.validators import extend  # noqa: PLC0415 - takes a moment to import

    count = _count_steps if is_foreign else _count_one
    keywords: dict[str, Keyword] = {name: partial(count, keyword) for name, keyword in kind.VALIDATORS.items()}
    keywords |= dict.fromkeys(_NOT_CHECKED, _skip_keyword)
    keywords["pattern"] = partial(count, _pattern)
    keywords["patternProperties"] = partial(count, _pattern_properties)
    keywords["uniqueItems"] = partial(count, _unique_items)
    for name in ("enum", "const"):
        if is_foreign and name in keywords:
            keywords[name] = partial(_compare, kind.VALIDATORS[name])
    for name in ("$ref", "$dynamicRef", "$recursiveRef"):
        if is_foreign and name in keywords:
            keywords[name] = partial(_follow, kind.VALIDATORS[name])
    if "additionalProperties" in keywords:
        keywords["additionalProperties"] = partial(count, _additional_properties)
    return extend(kind, keywords)


def _count_steps(keyword: Keyword, validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
    current.get().spend(_size(value))
    yield from _count_one(keyword, validator, value, instance, schema)


def _count_one(keyword: Keyword, validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
    """Counts what a keyword costs that has little to say."""
    steps = current.get()
    steps.spend(1 + _length(instance) // 4)
    steps.enter()
    try:
        for error in keyword(validator, value, instance, schema) or ():
            steps.spend(len(error.message) // _WRITTEN_IN_A_STEP)  # it quotes the value
            yield error
    finally:
        steps.leave()


def _follow(keyword: Keyword, validator: Any, reference: Any, instance: Any, schema: Any) -> Iterator[Any]:
    steps = current.get()
    if isinstance(reference, str):
        is_pointer = reference == "#" or reference.startswith("#/")
        steps.spend(1 + reference.count("/") // 2 if is_pointer else _SEARCH_STEPS)
    yield from _count_steps(keyword, validator, reference, instance, schema)


def _compare(keyword: Keyword, validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if isinstance(instance, list | dict):
        others = sum(isinstance(other, list | dict) for other in value) if isinstance(value, list) else 1
        current.get().spend(_weight(instance) * others // 8)
    yield from _count_steps(keyword, validator, value, instance, schema)


def _weight(value: Any) -> int:
    """Returns how many values a value has."""
    count, waiting = 0, [value]
    while waiting:
        node = waiting.pop()
        count += len(node)
        waiting += (inner for inner in (node.values() if isinstance(node, dict) else node) if _length(inner))
    return count


def _size(value: Any) -> int:
    """Returns how much a keyword has to look at; lists in it, such as those of `dependentRequired`, are quick."""
    if not isinstance(value, dict):
        return _length(value)
    return len(value) + sum(len(inner) for inner in value.values() if isinstance(inner, list)) // 8


def _length(value: Any) -> int:
    return len(value) if isinstance(value, list | dict) else 0


def _skip_keyword(_validator: Any, _value: Any, _instance: Any, _schema: Any) -> None:
    return None


def _matches(pattern: str, text: str) -> bool:
    """Returns whether a pattern occurs in a text, and counts what that costs; True when it might take too long."""
    return regex_matches(pattern, text, lambda cost: current.get().spend(cost // _COMPARED_IN_A_STEP))


def _pattern(_validator: Any, pattern: Any, instance: Any, _schema: Any) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError  # noqa: PLC0415

    if isinstance(instance, str) and not _matches(pattern, instance):
        yield ValidationError(f"{_quoted(instance)} does not match {_quoted(pattern)}")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, _schema: Any) -> Iterator[Any]:
    if isinstance(instance, dict):
        for pattern, subschema in patterns.items():
            for name, value in instance.items():
                current.get().spend(1)
                if _matches(pattern, name):
                    yield from validator.descend(value, subschema, path=name, schema_path=pattern)


def _additional_properties(validator: Any, additional: Any, instance: Any, schema: Any) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError  # noqa: PLC0415

    if not isinstance(instance, dict):
        return
    named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for name, value in instance.items():
        current.get().spend(1 + len(patterns))
        if name in named or any(_matches(pattern, name) for pattern in patterns):
            continue
        if isinstance(additional, dict):
            yield from validator.descend(value, additional, path=name)
        elif additional is False:
            yield ValidationError(f"{_quoted(name)} is not a property of the schema")


def _unique_items(_validator: Any, unique: Any, instance: Any, _schema: Any) -> Iterator[Any]:
    """Compares items by canonical text, because the library compares every pair."""
    from jsonschema.exceptions import ValidationError  # noqa: PLC0415

    if not unique or not isinstance(instance, list):
        return
    if len({json.dumps(_canonical_form(item), sort_keys=True) for item in instance}) < len(instance):
        yield ValidationError("has items that are not unique")


def _canonical_form(value: Any) -> Any:
    """Returns the value with equal numbers written the same way."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        current.get().spend(1 + len(value) // 4)
        return [_canonical_form(item) for item in value]
    if isinstance(value, dict):
        current.get().spend(1 + len(value) // 4)
        return {k: _canonical_form(v) for k, v in value.items()}
    if isinstance(value, str):
        current.get().spend(len(value) // 10_000)
    return value


def _quoted(text: str) -> str:
    """Returns the beginning of a text that may be long, quoted."""
    return repr(text[:200])
