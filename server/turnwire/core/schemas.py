"""JSON Schemas of tools: checks whether a text is one, and whether the arguments of a call fit it.

Schemas come from strangers and arguments from models, so every check counts its steps and stops at a limit. It reads
the keywords that say how a tool is called: types, properties, items, choices, bounds, and `$ref` within the document.
Other keywords (patterns, formats, conditions, `not`) are left to the tool, which checks its own input anyway. Nothing
is ever fetched.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import islice
from typing import Any
from urllib.parse import unquote

import msgspec

MAX_STEPS = 50_000
"""Maximum steps of one check, each about one value with its schema: a tenth of a second. Ordinary calls need some
dozens."""

INLINE_STEPS = 500
"""Maximum steps of a check on the event loop: a millisecond. A check that needs more starts again on a thread."""

INLINE_CHARS = 4096
"""Characters of schemas and values above which a check runs on its own thread: file reads, name look-ups and the
storage have other threads, and must not wait for it."""

MAX_VALUE_CHARS = 2**20
"""Maximum length of a value that is checked. A longer one is only parsed: its values would fill the memory."""

MAX_LEVELS = 100
"""Maximum nesting of objects and lists in a schema. Those that people and programs write have a dozen levels."""

MAX_DEPTH = 150
"""Maximum nesting of schemas in one check, references included: each takes three of the interpreter's 1,000 frames."""

MAX_PROBLEMS = 5
"""Maximum problems in one answer: a model repairs them together, and more would only cost tokens."""

MAX_PROBLEM_CHARS = 300
"""Maximum length of one problem: it quotes the value, and may contain the problems of several choices."""

MAX_KNOWN = 1024
"""Number of schemas whose problem, or validity, is cached."""

MAX_KNOWN_CHARS = 16 * 1024
"""Maximum length of a cached schema; longer ones are checked each time."""

SHOWN_CHARS = 100
"""Maximum characters of a name or a value that a problem quotes."""

SHOWN_CHOICES = 20
"""Maximum number of choices that a problem names."""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_list_of_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


_TYPES: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: _is_number(value) and value == value // 1,
    "number": _is_number,
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}

_BOUNDS: dict[str, tuple[Callable[[Any], bool], Callable[[Any, Any], bool], str]] = {
    "minimum": (_is_number, lambda value, bound: value < bound, "is less than the minimum of"),
    "maximum": (_is_number, lambda value, bound: value > bound, "is greater than the maximum of"),
    "exclusiveMinimum": (_is_number, lambda value, bound: value <= bound, "is not greater than"),
    "exclusiveMaximum": (_is_number, lambda value, bound: value >= bound, "is not less than"),
    "minLength": (_TYPES["string"], lambda value, bound: len(value) < bound, "has fewer characters than"),
    "maxLength": (_TYPES["string"], lambda value, bound: len(value) > bound, "has more characters than"),
    "minItems": (_TYPES["array"], lambda value, bound: len(value) < bound, "has fewer items than"),
    "maxItems": (_TYPES["array"], lambda value, bound: len(value) > bound, "has more items than"),
    "minProperties": (_TYPES["object"], lambda value, bound: len(value) < bound, "has fewer properties than"),
    "maxProperties": (_TYPES["object"], lambda value, bound: len(value) > bound, "has more properties than"),
}
"""By keyword: the values to which it applies, whether one is beyond the bound, and the text for that."""

_SCHEMA = ("additionalProperties", "contains", "propertyNames", "not", "if", "then", "else")
_SCHEMA_LIST = ("allOf", "anyOf", "oneOf", "prefixItems")
_SCHEMA_MAP = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")

_FORMS: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(_SCHEMA, (lambda value: isinstance(value, dict | bool), "is not a schema")),
    **dict.fromkeys(_SCHEMA_LIST, (lambda value: isinstance(value, list) and bool(value), "is not a list of schemas")),
    **dict.fromkeys(_SCHEMA_MAP, (_TYPES["object"], "is not an object")),
    **dict.fromkeys(_BOUNDS, (lambda value: _is_number(value) or isinstance(value, bool), "is not a number")),
    **dict.fromkeys(
        ("$ref", "$schema", "$id", "title", "description", "pattern"), (_TYPES["string"], "is not a string")
    ),
    "items": (lambda value: isinstance(value, dict | bool | list), "is not a schema"),
    "required": (lambda value: _is_list_of_names(value) or isinstance(value, bool), "is not a list of names"),
    "enum": (_TYPES["array"], "is not a list"),
}
"""The check of each keyword's value, and its description. A provider would refuse the whole request for another
value."""

_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

_thread = ThreadPoolExecutor(1, thread_name_prefix="schemas")


async def problems_of_schemas(schemas: Sequence[str]) -> tuple[str, ...]:
    """Returns why each text is not a valid JSON Schema of a tool; "" for a valid one. An empty text allows
    any object.
    """
    if sum(map(len, schemas)) <= INLINE_CHARS:
        return _problems_of(schemas)
    return await asyncio.get_running_loop().run_in_executor(_thread, _problems_of, schemas)


async def problem_of_arguments(schema_json: str, input_json: str) -> str:
    """Returns why arguments are invalid, for the model to read: each problem with its path. "" when they are valid.

    Args:
        schema_json: The tool's schema; "" allows any object. If the schema is invalid, only the JSON is checked.
        input_json: The arguments as the model wrote them; "" counts as {}.
    """
    text = input_json or "{}"
    if problem := _problem_of_object(text):
        return problem
    problem = await problem_of_value(schema_json, text)
    return f"the arguments do not fit the tool's schema: {problem}" if problem else ""


async def problem_of_value(schema_json: str, value_json: str) -> str:
    """Returns where valid JSON does not fit a valid schema: each problem with its path.

    Returns "" when it fits, when it is too long, and when checking it takes too long.
    """
    if not schema_json or len(value_json) > MAX_VALUE_CHARS:
        return ""
    if len(schema_json) + len(value_json) <= INLINE_CHARS:
        with contextlib.suppress(TooCostlyError):
            return check_value(schema_json, value_json, INLINE_STEPS)
    with contextlib.suppress(TooCostlyError):
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(_thread, check_value, schema_json, value_json, MAX_STEPS)
    return ""


def _problems_of(schemas: Sequence[str]) -> tuple[str, ...]:
    return tuple((_known_problem if len(text) <= MAX_KNOWN_CHARS else problem_of_schema)(text) for text in schemas)


def problem_of_schema(schema_json: str) -> str:
    """Returns why a text is not a JSON Schema of a tool; "" if it is. Costs linear time. May run on any thread."""
    if not schema_json:
        return ""
    try:
        schema = msgspec.json.decode(schema_json)
    except RecursionError:
        return "is nested too deeply"
    except msgspec.DecodeError as error:
        return f"is not valid JSON: {error}"
    return _problem_of_root(schema) if isinstance(schema, dict) else "is not a JSON object"


_known_problem = lru_cache(MAX_KNOWN)(problem_of_schema)
"""The same tools come with each message and each step."""


def _problem_of_root(schema: dict[str, Any]) -> str:
    waiting, references, has_other_ids = [("", schema, 1)], list[str](), False
    while waiting:
        path, node, level = waiting.pop()
        if problem := _problem_of_node(node):
            return f"is not a JSON Schema: {path}{problem}"
        if level == MAX_LEVELS:
            return "is nested too deeply"
        has_other_ids |= "$id" in node
        references += [node["$ref"]] if "$ref" in node else []
        inner = _inner_schemas(node)
        waiting += ((f"{path}{name}.", one, level + 1) for name, one in inner if isinstance(one, dict))
    missing = () if has_other_ids else (one for one in references if not _leads_somewhere(one, schema))
    return next((f"refers to {one[:SHOWN_CHARS]!r}, which is not in it; nothing is fetched" for one in missing), "")


def _problem_of_node(node: dict[str, Any]) -> str:
    """Returns the problem with the keywords of one schema, without those of the schemas inside it; "" for none."""
    for key in node.keys() & _FORMS.keys():
        is_right, problem = _FORMS[key]
        if not is_right(node[key]):
            return f"{key}: {_quoted(node[key])} {problem}"
    for name in names if isinstance(names := node.get("type", []), list) else [names]:
        if not isinstance(name, str) or name not in _TYPES:
            return f"type: {_quoted(name)} is not one of {', '.join(map(repr, _TYPES))}"
    for name, inner in _inner_schemas(node):
        if not isinstance(inner, dict | bool):
            return f"{name}: {_quoted(inner)} is not a schema"
    return ""


def check_value(schema_json: str, value_json: str, max_steps: int) -> str:
    """Returns what a model must change in a value; "" if it fits, or the schema is not one. May run on any thread.

    Raises:
        TooCostlyError: the check takes more steps, or goes deeper than the interpreter can.
    """
    try:
        schema = msgspec.json.decode(schema_json)
    except (msgspec.DecodeError, RecursionError):
        return ""
    try:
        value = msgspec.json.decode(value_json)
    except (msgspec.DecodeError, RecursionError) as error:
        return f"is not valid JSON: {error}"
    return "; ".join(islice(_Check(schema, max_steps).problems(schema, value, "", 0), MAX_PROBLEMS))


class TooCostlyError(Exception):
    """A check exceeded its maximum of steps or depth."""


class _Check:
    """One check of a value. An odd schema makes it report nothing; none makes it fail."""

    def __init__(self, root: Any, max_steps: int) -> None:
        self._root = root
        self._left = max_steps
        self._targets: dict[str, Any] = {}

    def problems(self, schema: Any, value: Any, path: str, depth: int) -> Iterator[str]:
        """Yields the problems with a value, each after its path."""
        self._spend(1)
        if depth > MAX_DEPTH:
            raise TooCostlyError
        if schema is False:
            yield _said(path, f"{_quoted(value)} is not allowed here")
        if not isinstance(schema, dict):
            return
        if isinstance(reference := schema.get("$ref"), str):
            yield from self.problems(self._target(reference), value, path, depth + 1)
        if problem := self._of_itself(schema, value):
            yield _said(path, problem)
            return  # the content of a value of another type says nothing more
        if isinstance(value, dict):
            yield from self._of_object(schema, value, path, depth)
        elif isinstance(value, list):
            yield from self._of_items(schema, value, path, depth)
        for inner in _list(schema.get("allOf")):
            yield from self.problems(inner, value, path, depth + 1)
        for key in ("anyOf", "oneOf"):
            if choices := _list(schema.get(key)):
                yield from self._of_choices(choices, value, path, depth)

    def _of_itself(self, schema: dict[str, Any], value: Any) -> str:
        """Returns the problem with a value itself, whatever it contains; "" for none."""
        names = schema.get("type")
        types = [name for name in ([names] if isinstance(names, str) else _list(names)) if isinstance(name, str)]
        if types and not any(name not in _TYPES or _TYPES[name](value) for name in types):
            return f"{_quoted(value)} is not of type {', '.join(map(repr, types))}"
        if "const" in schema and not _may_equal(value, schema["const"]):
            return f"{_quoted(schema['const'])} was expected"
        if choices := _list(schema.get("enum")):
            self._spend(len(choices) // 8)
            if not any(_may_equal(value, choice) for choice in choices):
                shown = ", ".join(map(_quoted, choices[:SHOWN_CHOICES])) + (", ..." * (len(choices) > SHOWN_CHOICES))
                return f"{_quoted(value)} is not one of [{shown}]"
        for keyword in schema.keys() & _BOUNDS.keys():
            (is_meant, is_beyond, words), bound = _BOUNDS[keyword], schema[keyword]
            if _is_number(bound) and is_meant(value) and is_beyond(value, bound):
                return f"{_quoted(value)} {words} {bound}"
        return ""

    def _of_object(self, schema: dict[str, Any], value: dict[str, Any], path: str, depth: int) -> Iterator[str]:
        named, others = _map(schema.get("properties")), schema.get("additionalProperties")
        has_patterns = bool(schema.get("patternProperties"))
        required = _list(schema.get("required"))
        self._spend((len(value) + len(required)) // 8)
        for name, inner in value.items():
            if name in named:
                yield from self.problems(named[name], inner, _joined(path, name), depth + 1)
            elif others is False and not has_patterns:
                yield _said(path, f"{_quoted(name)} is not a property of the schema")
            elif isinstance(others, dict) and not has_patterns:
                yield from self.problems(others, inner, _joined(path, name), depth + 1)
        for name in required:
            if isinstance(name, str) and name not in value:
                yield _said(path, f"{_quoted(name)} is a required property")

    def _of_items(self, schema: dict[str, Any], value: list[Any], path: str, depth: int) -> Iterator[str]:
        items = schema.get("items")
        first = items if isinstance(items, list) else _list(schema.get("prefixItems"))  # a list before draft 2020-12
        rest = None if isinstance(items, list) else items
        for index, inner in enumerate(value):
            one = first[index] if index < len(first) else rest
            if one is None:
                return
            yield from self.problems(one, inner, f"{path}[{index}]", depth + 1)

    def _of_choices(self, choices: list[Any], value: Any, path: str, depth: int) -> Iterator[str]:
        reasons = list[str]()
        for choice in choices:
            problem = next(self.problems(choice, value, "", depth + 1), None)
            if problem is None:
                return
            if len(reasons) < MAX_PROBLEMS:
                reasons.append(problem)
        yield _said(path, f"{_quoted(value)} fits none of the choices: {'; '.join(dict.fromkeys(reasons))}")

    def _target(self, reference: str) -> Any:
        if reference not in self._targets:
            self._targets[reference] = _target(reference, self._root)
        return self._targets[reference]

    def _spend(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise TooCostlyError


def _problem_of_object(text: str) -> str:
    """Returns why a text is not a JSON object. Does not decode the values of a long one, so it is cheap."""
    is_short = len(text) <= INLINE_CHARS
    try:
        value = msgspec.json.decode(text) if is_short else _object(text)
    except (msgspec.DecodeError, RecursionError) as error:
        if is_short or not isinstance(error, msgspec.ValidationError):  # a short one may have a number out of range
            return f"the arguments are not valid JSON: {error}"
        value = None
    return "" if isinstance(value, dict) else "the arguments are not a JSON object"


def _inner_schemas(node: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for key in _SCHEMA:
        if key in node:
            yield key, node[key]
    for key in (*_SCHEMA_LIST, "items"):
        values = node.get(key, [])
        yield from ((key, one) for one in (values if isinstance(values, list) else [values]))
    for key in _SCHEMA_MAP:
        yield from ((f"{key}.{name[:SHOWN_CHARS]}", one) for name, one in node.get(key, {}).items())


def _leads_somewhere(reference: str, root: dict[str, Any]) -> bool:
    """Returns whether a reference leads to a part of the document, or may: anchors, and the schemas of schemas."""
    if reference == "#" or reference.startswith("#/"):
        return isinstance(_target(reference, root), dict | bool)
    return reference.startswith(("#", "https://json-schema.org/", "http://json-schema.org/"))


def _target(reference: str, root: Any) -> Any:
    """Returns the target of a JSON pointer in the document; None if it is not a pointer, or has no target."""
    if reference != "#" and not reference.startswith("#/"):
        return None
    node = root
    for step in unquote(reference[1:]).split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict):
            node = node.get(key)
        elif isinstance(node, list) and key.isdecimal() and len(key) < 9 and int(key) < len(node):
            node = node[int(key)]
        else:
            return None
    return node


def _may_equal(value: Any, other: Any) -> bool:
    """Returns whether JSON values are equal; True for two lists or objects, whose comparison may be long."""
    if isinstance(value, list | dict):
        return type(value) is type(other)
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _map(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _quoted(value: Any) -> str:
    """Returns a short description of a value, which may be megabytes."""
    if isinstance(value, str):
        return repr(value if len(value) <= SHOWN_CHARS else value[:SHOWN_CHARS] + "...")
    if isinstance(value, dict):
        return "an object"
    return "a list" if isinstance(value, list) else msgspec.json.encode(value).decode()[:SHOWN_CHARS]


def _joined(path: str, name: str) -> str:
    name = name[:SHOWN_CHARS]
    return f"{path}.{name}" if path else name


def _said(path: str, problem: str) -> str:
    text = f"{path}: {problem}" if path else problem
    half = MAX_PROBLEM_CHARS // 2
    return text if len(text) <= MAX_PROBLEM_CHARS else f"{text[:half]} ... {text[-half:]}"
