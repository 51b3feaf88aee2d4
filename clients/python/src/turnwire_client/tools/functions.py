"""A tool made of a function: its declaration for the model, and how a call runs it."""

import asyncio
import dataclasses
import inspect
import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple, get_type_hints

from opencode.tool.tool_pb2 import ToolDefinition
from turnwire_client.tools.schemas import object_schema, value_of

MAX_SCHEMA_BYTES = 64 << 10
"""Largest schema in a declaration; the server refuses a longer one."""

MAX_OUTPUT_BYTES = 16 << 20
"""Largest result; a larger one is an error. A model reads it up to the server's own limit; all of it is stored."""

MAX_ERROR_CHARS = 4_096
"""Longest error text that a model reads."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Result(NamedTuple):
    """Result of a call."""

    output: str
    is_json: bool = False
    """Whether the output is JSON text."""
    is_error: bool = False
    """Whether the call failed; the output then says why."""


@dataclasses.dataclass(frozen=True)
class Tool:
    """A function that a model may call. Make it with `tool_of`, or with `Client.tool`."""

    function: Callable[..., Any]
    name: str
    definition: ToolDefinition
    timeout_seconds: float | None
    """Maximum time of a call; None for as long as it takes."""
    hints: dict[str, Any]
    """The types of its parameters by name."""
    required: tuple[str, ...]
    """Parameters without a default."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function itself, as before it was a tool."""
        return self.function(*args, **kwargs)

    async def run(self, input_json: str) -> Result:
        """Runs one call: a coroutine function in this loop, any other function in a thread.

        Never raises for what the function does: the model reads it as an error. When it is cancelled, a coroutine
        function is too; a thread goes on, and its result is dropped.
        """
        try:
            arguments = self._arguments(json.loads(input_json or "{}"))
        except (ValueError, TypeError, RecursionError) as problem:
            return Result(f"wrong arguments: {problem}"[:MAX_ERROR_CHARS], is_error=True)
        try:
            async with asyncio.timeout(self.timeout_seconds):
                if inspect.iscoroutinefunction(self.function):
                    value = await self.function(**arguments)
                else:
                    value = await asyncio.to_thread(self.function, **arguments)
            return _result(value)
        except TimeoutError as problem:
            text = str(problem) or f"it took longer than {self.timeout_seconds} seconds"
            return Result(f"TimeoutError: {text}"[:MAX_ERROR_CHARS], is_error=True)
        except Exception as problem:
            return Result(f"{type(problem).__name__}: {problem}"[:MAX_ERROR_CHARS], is_error=True)

    def _arguments(self, given: Any) -> dict[str, Any]:
        """Returns the arguments of a call as values of their types. Raises ValueError."""
        if not isinstance(given, dict):
            raise ValueError("they are no object")
        if unknown := given.keys() - self.hints.keys():
            raise ValueError(f"there is no {sorted(unknown)[0]!r}")
        if missing := [name for name in self.required if name not in given]:
            raise ValueError(f"{missing[0]!r} is missing")
        return {name: value_of(self.hints[name], value, name) for name, value in given.items()}


def tool_of(
    function: Callable[..., Any], *, name: str = "", description: str = "", timeout_seconds: float | None = None
) -> Tool:
    """Returns a tool of a function.

    Args:
        function: Its parameters have type hints and can be given by name. It may be a coroutine function.
        name: What the model calls it; "" for the name of the function.
        description: What the model reads about it; "" for the docstring.
        timeout_seconds: How long a call may run; None for as long as it takes.

    Raises:
        TypeError: a parameter has no type hint, a type without a JSON Schema, or cannot be given by name.
        ValueError: the name or the schema is one that the server would refuse.
    """
    name = name or getattr(function, "__name__", "")
    if not _NAME.fullmatch(name):
        raise ValueError(f"a tool's name has 1 to 64 of A-Z a-z 0-9 _ -, which {name!r} has not")
    hints = get_type_hints(function, include_extras=True)
    fields, required = {}, []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"{name}: {parameter} cannot be given by name")
        if parameter.name not in hints:
            raise TypeError(f"{name}: {parameter.name} has no type hint")
        fields[parameter.name] = hints[parameter.name]
        if parameter.default is parameter.empty:
            required.append(parameter.name)
    schema = json.dumps(object_schema(fields, required, ""), ensure_ascii=False)
    if len(schema.encode()) > MAX_SCHEMA_BYTES:
        raise ValueError(f"{name}: the schema of its arguments is larger than {MAX_SCHEMA_BYTES} bytes")
    text = description or inspect.getdoc(function) or ""
    definition = ToolDefinition(name=name, description=text, input_schema_json=schema)
    return Tool(function, name, definition, timeout_seconds, fields, tuple(required))


def _result(value: Any) -> Result:
    """Returns what a function returned, for the model: a text as it is, None as "", everything else as JSON."""
    is_text = value is None or isinstance(value, str)
    output = value or "" if is_text else json.dumps(value, ensure_ascii=False, allow_nan=False, default=_jsonable)
    if len(output.encode()) > MAX_OUTPUT_BYTES:
        raise ValueError(f"the tool returned more than {MAX_OUTPUT_BYTES >> 20} MiB")
    return Result(output, is_json=not is_text)


def _jsonable(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    raise TypeError(f"a tool returned a {type(value).__name__}, which has no JSON form")
