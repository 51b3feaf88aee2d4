"""Schemas that are ready to check values: draft 2020-12 unless `$schema` names another; nothing is ever fetched.

Everything here may run on any thread: shared values are immutable.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
import structlog

from turnwire.core.schemas.keywords import bounded_validator
from turnwire.core.schemas.loops import has_endless_reference
from turnwire.core.schemas.meta import is_meta_schema, meta_schema
from turnwire.core.schemas.patterns import known_pattern, steps_to_compile
from turnwire.core.schemas.steps import Steps, TooCostlyError, TooDeepError, counting

MAX_STEPS = 50_000
"""Most steps of one check, about values times keywords: half a second. Ordinary calls need some hundreds."""

MAX_PROBLEMS = 5
"""Most problems in one text: a model repairs them together, and more would only cost tokens."""

MAX_PROBLEM_CHARS = 300
"""Longest description of one problem: the library quotes the value, which may be megabytes."""

MAX_LEVELS = 100
"""Objects and lists inside each other in a schema. Those that people and programs write have a dozen."""

log = structlog.get_logger()


class Schema:
    """A compiled schema. `problem` describes what is wrong with the schema itself; "" when it is usable."""

    def __init__(self, validator: Any, problem: str = "", nodes: int = 0) -> None:
        """Use `compile_schema`."""
        self._validator = validator
        self.problem = problem
        self.nodes = nodes
        """Values in it: what it takes of the memory."""

    def problem_with(self, value: object, max_steps: int = MAX_STEPS) -> str:
        """Returns what a model must change in its arguments; "" when they are valid or the schema is unusable.

        Raises:
            TooCostlyError: the check took more steps.
        """
        if self._validator is None:
            return ""
        try:
            return "; ".join(map(_description_of, _errors(self._validator, value, MAX_PROBLEMS, Steps(max_steps))))
        except TooCostlyError:
            raise
        except (TooDeepError, RecursionError):
            return "the arguments are nested too deeply"
        except BaseException as error:
            if not _is_of_the_library(error):
                raise
            log.debug("arguments_not_checked", error=type(error).__name__)
            return ""


def compile_schema(schema_json: str, steps: Steps) -> Schema:
    """Returns the compiled schema of a text; "" allows any object.

    Raises:
        TooCostlyError: there are no more steps.
    """
    if not schema_json:
        return Schema(None)
    try:
        return _compile(msgspec.json.decode(schema_json), steps)
    except TooCostlyError:
        raise
    except (TooDeepError, RecursionError):
        return Schema(None, "is nested too deeply")
    except msgspec.DecodeError as error:
        return Schema(None, f"is not valid JSON: {error}")
    except BaseException as error:
        if not _is_of_the_library(error):
            raise
        log.debug("schema_unusable", error=type(error).__name__)
        return Schema(None, f"is not a JSON Schema: {type(error).__name__}")


def _is_of_the_library(error: BaseException) -> bool:
    """Returns whether an error tells of an odd schema: values of $schema, $id and $ref raise undocumented errors.

    A panic in its Rust code, such as at the end of the stack, is no Exception.
    """
    return isinstance(error, Exception) or type(error).__module__ == "pyo3_runtime"


def _compile(schema: Any, steps: Steps) -> Schema:
    if not isinstance(schema, dict):
        return Schema(None, "is not a JSON object")
    if (nodes := _nodes(schema, steps)) is None:
        return Schema(None, "is nested too deeply")
    from jsonschema.validators import Draft202012Validator, validator_for  # noqa: PLC0415 - takes a moment to import
    from referencing import Registry  # noqa: PLC0415
    from referencing.exceptions import Unresolvable  # noqa: PLC0415

    nothing: Any = Registry()  # empty, or the library would fetch what a $ref names
    kind = validator_for(schema, default=Draft202012Validator)
    # Our bounds would not apply to a subschema that names another draft, so only the root may name one. What is to be a
    # schema itself is left to the tool.
    schema = _without_drafts(schema)
    meta = bounded_validator(kind, is_foreign=False)(meta_schema(kind), registry=nothing)
    for error in _errors(meta, schema, 1, steps):
        return Schema(None, f"is not a JSON Schema: {_description_of(error)}")
    if has_endless_reference(schema):
        return Schema(None, "refers to itself without going into a property or an item, so no check of it ends")
    validator = bounded_validator(kind)(schema, registry=nothing)
    for reference in _references(schema):
        steps.spend(1 + reference.count("/"))
        try:
            validator._resolver.lookup(reference)
        except Unresolvable:
            return Schema(None, f"refers to {reference[:100]!r}, which is not in it; nothing is fetched")
    return Schema(validator, nodes=nodes)


def _errors(validator: Any, value: object, limit: int, steps: Steps) -> list[Any]:
    """Returns the first errors of a check."""
    with counting(steps):
        return [error for error, _ in zip(validator.iter_errors(value), range(limit), strict=False)]


def _nodes(schema: dict[str, Any], steps: Steps) -> int | None:
    """Counts the values of a schema; None when they are nested too deeply. Compiles its patterns."""
    count, level = 0, list[Any]([schema])
    for _ in range(MAX_LEVELS):
        inner = list[Any]()
        for node in level:
            values = node if isinstance(node, list) else node.values()
            count += len(values)
            inner += (value for value in values if isinstance(value, list | dict))
            if isinstance(node, dict):
                _compile_patterns(node, steps)
        steps.spend(len(inner) // 8)
        if not inner:
            return count + 1
        level = inner
    return None


def _compile_patterns(node: dict[str, Any], steps: Steps) -> None:
    named = node.get("patternProperties")
    for pattern in (node.get("pattern"), *(named if isinstance(named, dict) else ())):
        if isinstance(pattern, str):
            steps.spend(steps_to_compile(pattern))
            known_pattern(pattern)


def _without_drafts(node: Any) -> Any:
    if isinstance(node, list):
        return [_without_drafts(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {k: _without_drafts(v) for k, v in node.items() if not isinstance(v, str) or not _names_draft(k, v)}


def _names_draft(key: str, value: str) -> bool:
    return key == "$schema" or (key == "$ref" and value[:1] != "#" and is_meta_schema(value))


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
