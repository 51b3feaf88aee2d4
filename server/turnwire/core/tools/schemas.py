"""Checks arguments of tool calls against the tool's JSON Schema before the call runs.

Uses draft 2020-12 unless `$schema` names another, and never fetches anything. Schemas come from strangers and arguments
from models, so the cost is bounded: a check counts its steps. Keywords without such a bound (patterns that may take too
long, `unevaluatedProperties`, `unevaluatedItems`) are left to the tool, which checks its own input anyway. No lock is
needed, because shared values are immutable.
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from functools import lru_cache, partial
from typing import Any

import msgspec
import structlog

from turnwire.core.tools.patterns import regex_matches

MAX_STEPS = 50_000
"""Most steps of one check, about values times keywords: half a second. Ordinary calls need some hundreds."""

MAX_PROBLEMS = 5
"""Most problems in one text: a model repairs them together, and more would only cost tokens."""

MAX_PROBLEM_CHARS = 300
"""Longest description of one problem: the library quotes the value, which may be megabytes."""

INLINE_CHARS = 4096
"""Longer arguments, and schemas that are not compiled yet, are checked in a thread to keep the event loop free."""

_CACHED_SCHEMAS = 1024
"""Compiled schemas in the cache: enough for the tools of some dozens of frontends."""

_NOT_CHECKED = ("unevaluatedProperties", "unevaluatedItems", "format")

Keyword = Callable[[Any, Any, Any, Any], Iterable[Any] | None]


class _Budget:
    """Counts the steps of one check."""

    def __init__(self) -> None:
        self._left = MAX_STEPS

    def spend(self, value: object) -> None:
        self._left -= 1 + (len(value) if isinstance(value, list | dict) else 0)
        if self._left < 0:
            raise _TooCostlyError


class _TooCostlyError(Exception):
    """The check exceeded its steps."""


log = structlog.get_logger()

_budget: ContextVar[_Budget] = ContextVar("budget")


class Schema:
    """A compiled schema. `problem` describes what is wrong with the schema itself; "" when it is usable."""

    def __init__(self, validator: Any, problem: str = "") -> None:
        """Use `compile_schema`."""
        self._validator = validator
        self.problem = problem

    def problem_with(self, value: object) -> str:
        """Returns what a model must change in its arguments; "" when they are valid or the schema is unusable."""
        if self._validator is None:
            return ""
        try:
            return "; ".join(_description_of(error) for error in _errors(self._validator, value, MAX_PROBLEMS))
        except _TooCostlyError:
            return ""
        except RecursionError:
            return "the arguments are nested too deeply"
        except Exception as error:  # for example an unresolvable reference: not the model's mistake
            log.debug("arguments_not_checked", error=type(error).__name__)
            return ""


async def problem_of_schema(schema_json: str) -> str:
    """Returns why a text is not a valid JSON Schema of a tool; "" when it is. An empty text allows any object."""
    if not schema_json or schema_json in _known:
        return compile_schema(schema_json).problem
    return (await asyncio.to_thread(compile_schema, schema_json)).problem


async def problem_of_arguments(schema_json: str, input_json: str) -> str:
    """Returns why arguments are invalid, for the model to read: each problem with its path. "" when they are valid.

    Args:
        schema_json: The tool's schema; "" allows any object. If the schema is invalid, only the JSON is checked.
        input_json: The arguments as the model wrote them; "" counts as {}.
    """
    if _is_quick(schema_json, input_json):
        return _problem_of_arguments(schema_json, input_json)
    return await asyncio.to_thread(_problem_of_arguments, schema_json, input_json)


async def problem_of_value(schema_json: str, value_json: str) -> str:
    """Returns where valid JSON does not fit a valid schema: each problem with its path; "" when it fits."""
    if _is_quick(schema_json, value_json):
        return _problem_of_value(schema_json, value_json)
    return await asyncio.to_thread(_problem_of_value, schema_json, value_json)


def _is_quick(schema_json: str, value_json: str) -> bool:
    return len(value_json) <= INLINE_CHARS and (not schema_json or schema_json in _known)


def _problem_of_value(schema_json: str, value_json: str) -> str:
    return compile_schema(schema_json).problem_with(msgspec.json.decode(value_json))


def _problem_of_arguments(schema_json: str, input_json: str) -> str:
    try:
        value = msgspec.json.decode(input_json or "{}")
    except (msgspec.DecodeError, RecursionError) as error:
        return f"the arguments are not valid JSON: {error}"
    if not isinstance(value, dict):
        return "the arguments are not a JSON object"
    problem = compile_schema(schema_json).problem_with(value)
    return f"the arguments do not fit the tool's schema: {problem}" if problem else ""


_known: set[str] = set()
"""Recently compiled schemas. Only a hint: the cache may have dropped one, which is then compiled again."""


@lru_cache(maxsize=_CACHED_SCHEMAS)
def compile_schema(schema_json: str) -> Schema:
    """Returns the compiled schema of a text. The first time may take a moment; results are cached by text."""
    if len(_known) >= _CACHED_SCHEMAS:
        _known.clear()
    _known.add(schema_json)
    if not schema_json:
        return Schema(None)
    try:
        return _compile(msgspec.json.decode(schema_json))
    except _TooCostlyError:
        return Schema(None, "is too large to be checked")
    except RecursionError:
        return Schema(None, "is nested too deeply")
    except msgspec.DecodeError as error:
        return Schema(None, f"is not valid JSON: {error}")
    except Exception as error:  # odd values of $schema, $id and $ref raise undocumented errors
        log.debug("schema_unusable", error=type(error).__name__)
        return Schema(None, f"is not a JSON Schema: {type(error).__name__}")


def _compile(schema: Any) -> Schema:
    if not isinstance(schema, dict):
        return Schema(None, "is not a JSON object")
    from jsonschema.validators import Draft202012Validator, validator_for  # noqa: PLC0415 - takes a moment to import
    from referencing import Registry  # noqa: PLC0415
    from referencing.exceptions import Unresolvable  # noqa: PLC0415

    nothing: Any = Registry()  # empty, or the library would fetch what a $ref names
    kind = validator_for(schema, default=Draft202012Validator)
    # Our bounds would not apply to a subschema that names another draft, so only the root may name one.
    schema = _without_drafts(schema)
    meta = _bounded_validator(kind)(kind.META_SCHEMA, registry=nothing)
    for error in _errors(meta, schema, 1):
        return Schema(None, f"is not a JSON Schema: {_description_of(error)}")
    validator = _bounded_validator(kind)(schema, registry=nothing)
    for reference in _references(schema):
        try:
            validator._resolver.lookup(reference)
        except Unresolvable:
            return Schema(None, f"refers to {reference[:100]!r}, which is not in it; nothing is fetched")
    return Schema(validator)


def _errors(validator: Any, value: object, limit: int) -> list[Any]:
    """Returns the first errors of a check."""
    token = _budget.set(_Budget())
    try:
        return [error for error, _ in zip(validator.iter_errors(value), range(limit), strict=False)]
    finally:
        _budget.reset(token)


@lru_cache
def _bounded_validator(kind: Any) -> Any:
    """Returns the validator class of a draft with keywords whose cost is bounded."""
    from jsonschema.validators import extend  # noqa: PLC0415

    keywords: dict[str, Keyword] = {name: partial(_count_steps, keyword) for name, keyword in kind.VALIDATORS.items()}
    keywords |= dict.fromkeys(_NOT_CHECKED, _skip_keyword)
    keywords["pattern"] = _pattern
    keywords["patternProperties"] = _pattern_properties
    keywords["uniqueItems"] = _unique_items
    if "additionalProperties" in keywords:
        keywords["additionalProperties"] = _additional_properties
    return extend(kind, keywords)


def _count_steps(keyword: Keyword, validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
    _budget.get().spend(value)
    yield from keyword(validator, value, instance, schema) or ()


def _skip_keyword(_validator: Any, _value: Any, _instance: Any, _schema: Any) -> None:
    return None


def _pattern(_validator: Any, pattern: Any, instance: Any, _schema: Any) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError  # noqa: PLC0415

    _budget.get().spend(pattern)
    if isinstance(instance, str) and not regex_matches(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, _schema: Any) -> Iterator[Any]:
    if isinstance(instance, dict):
        for pattern, subschema in patterns.items():
            for name, value in instance.items():
                _budget.get().spend(pattern)
                if regex_matches(pattern, name):
                    yield from validator.descend(value, subschema, path=name, schema_path=pattern)


def _additional_properties(validator: Any, additional: Any, instance: Any, schema: Any) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError  # noqa: PLC0415

    if not isinstance(instance, dict):
        return
    named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for name, value in instance.items():
        _budget.get().spend(patterns)
        if name in named or any(regex_matches(pattern, name) for pattern in patterns):
            continue
        if isinstance(additional, dict):
            yield from validator.descend(value, additional, path=name)
        elif additional is False:
            yield ValidationError(f"{name!r} is not a property of the schema")


def _unique_items(_validator: Any, unique: Any, instance: Any, _schema: Any) -> Iterator[Any]:
    """Compares items by canonical text, because the library compares every pair."""
    from jsonschema.exceptions import ValidationError  # noqa: PLC0415

    if unique and isinstance(instance, list):
        _budget.get().spend(instance)
        if len({json.dumps(_canonical_form(item), sort_keys=True) for item in instance}) < len(instance):
            yield ValidationError("has items that are not unique")


def _canonical_form(value: Any) -> Any:
    """Returns the value with equal numbers written the same way."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_canonical_form(item) for item in value]
    return {k: _canonical_form(v) for k, v in value.items()} if isinstance(value, dict) else value


def _without_drafts(node: Any) -> Any:
    if isinstance(node, list):
        return [_without_drafts(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {k: _without_drafts(v) for k, v in node.items() if k != "$schema" or not isinstance(v, str)}


def _references(node: Any) -> Iterator[str]:
    """Yields the references of a schema; none if a part has an `$id`, which references may be relative to."""
    nodes, found = [node], list[str]()
    while nodes:
        node = nodes.pop()
        if isinstance(node, list):
            nodes += node
        elif isinstance(node, dict):
            if isinstance(node.get("$id"), str):
                return
            nodes += node.values()
            if isinstance(node.get("$ref"), str):
                found.append(node["$ref"])
    yield from found


def _description_of(error: Any) -> str:
    """Returns path and problem of an error, cut to MAX_PROBLEM_CHARS."""
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.absolute_path)
    message = str(error.message)
    text = f"{path[1:] if path[:1] == '.' else path}: {message}" if path else message
    if len(text) <= MAX_PROBLEM_CHARS:
        return text
    half = MAX_PROBLEM_CHARS // 2
    return f"{text[:half]} ... {text[-half:]}"
