"""Checks schemas, and values against schemas, without holding anybody up."""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

import msgspec

from turnwire.core.schemas.compiled import MAX_STEPS, Schema, compile_schema
from turnwire.core.schemas.steps import Steps, TooCostlyError

INLINE_CHARS = 4096
"""Longer values are checked on the thread."""

INLINE_STEPS = 300
"""A check that takes more begins again on the thread: two milliseconds of the event loop."""

MAX_VALUE_CHARS = 2**20
"""Of a value that is checked. A longer one is only read as JSON: reading it into values would hold up everybody."""

MAX_KEPT_NODES = 200_000
"""Values in the compiled schemas of clients that are kept, about 50 MB: thousands of tools. As many of the server's."""

SHORT_SECONDS = 0.05
"""Work of so much is done without a rest."""

_NODE_BYTES = 256

TOO_LARGE = "is too large to be checked"

P = ParamSpec("P")
T = TypeVar("T")

_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class SchemasTooCostlyError(Exception):
    """The new schemas of a request take more steps than they may. `index` is that of the schema where that was seen."""

    def __init__(self, index: int) -> None:
        """Takes the index."""
        super().__init__(index)
        self.index = index


class _Kept:
    """Compiled schemas by their texts, those used last."""

    def __init__(self, max_nodes: int) -> None:
        self._max_nodes = max_nodes
        self._nodes = 0
        self._schemas: OrderedDict[str, Schema] = OrderedDict()

    def get(self, text: str) -> Schema | None:
        schema = self._schemas.get(text)
        if schema is not None:
            self._schemas.move_to_end(text)
        return schema

    def add(self, text: str, schema: Schema) -> None:
        if text not in self._schemas:
            self._schemas[text] = schema
            self._nodes += _nodes_of(text, schema)
        while self._nodes > self._max_nodes and len(self._schemas) > 1:
            self._nodes -= _nodes_of(*self._schemas.popitem(last=False))


def _nodes_of(text: str, schema: Schema) -> int:
    """Returns what a schema and its text take of the memory, in values."""
    return 1 + schema.nodes + len(text) // _NODE_BYTES


class SchemaChecks:
    """Checks on a thread of their own: one piece of work after the other, at most half a second each.

    File reads, name look-ups and the storage have other threads. Used on the event loop only.
    """

    def __init__(self) -> None:
        """The thread starts with the first check."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="schemas")
        self._one_at_a_time = asyncio.Lock()
        self._rests_until = 0.0
        self._kept, self._kept_of_server = _Kept(MAX_KEPT_NODES), _Kept(MAX_KEPT_NODES)

    async def problems(self, tenant: str, schemas: Sequence[str], max_steps: int = 0) -> tuple[str, ...]:
        """Returns why texts are not valid JSON Schemas of tools; "" for each that is. An empty text allows any object.

        Args:
            tenant: Who waits for it; "" for schemas of the server's own tools, which no tenant's displace.
            schemas: The texts.
            max_steps: Of all that are not known yet, together; 0 sets no limit but that of each.

        Raises:
            SchemasTooCostlyError: they take more.
        """
        left, found = max_steps or MAX_STEPS * len(schemas), list[str]()
        for index, text in enumerate(schemas):
            schema, used = await self._compiled(tenant, text, left)
            if schema is None:
                raise SchemasTooCostlyError(index)
            left -= used
            found.append(schema.problem)
        return tuple(found)

    async def problem_of_arguments(self, tenant: str, schema_json: str, input_json: str) -> str:
        """Returns why arguments are invalid, for the model to read: each problem with its path. "" when they are valid.

        Args:
            tenant: Who waits for it.
            schema_json: The tool's schema; "" allows any object. If the schema is invalid, only the JSON is checked.
            input_json: The arguments as the model wrote them; "" counts as {}.
        """
        text = input_json or "{}"
        if problem := _problem_of_object(text):
            return problem
        problem = await self.problem_of_value(tenant, schema_json, text)
        return f"the arguments do not fit the tool's schema: {problem}" if problem else ""

    async def problem_of_value(self, tenant: str, schema_json: str, value_json: str) -> str:
        """Returns where valid JSON does not fit a valid schema: each problem with its path.

        Returns "" when it fits, when it is too long, and when checking it takes too long.
        """
        if not schema_json or len(value_json) > MAX_VALUE_CHARS:
            return ""
        schema, _ = await self._compiled(tenant, schema_json, MAX_STEPS)
        if schema is None:
            return ""
        if len(value_json) <= INLINE_CHARS:
            with contextlib.suppress(TooCostlyError):
                return _problem_of_value(schema, value_json, INLINE_STEPS)
        with contextlib.suppress(TooCostlyError):
            return await self._run(_problem_of_value, schema, value_json, MAX_STEPS)
        return ""

    async def _compiled(self, tenant: str, text: str, left: int) -> tuple[Schema | None, int]:
        """Returns a schema, and how many steps it took to compile; None when that is more than are left."""
        known = Schema(None) if not text else self._kept_of_server.get(text) or self._kept.get(text)
        if known is not None:
            return known, 0
        schema, used = await self._run(_compile, text, left)
        if schema is not None:
            (self._kept if tenant else self._kept_of_server).add(text, schema)
        return schema, used

    async def _run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        async with self._one_at_a_time:
            return await self._work(partial(function, *args, **kwargs))

    async def _work(self, work: Callable[[], T]) -> T:
        """Does work on the thread, which has half of the time: it takes the interpreter from everybody else."""
        loop = asyncio.get_running_loop()
        if (rest := self._rests_until - loop.time()) > SHORT_SECONDS:
            await asyncio.sleep(rest)
        began = loop.time()
        try:
            return await loop.run_in_executor(self._thread, work)
        finally:
            self._rests_until = max(self._rests_until, began) + (loop.time() - began) * 2


def _compile(text: str, left: int) -> tuple[Schema | None, int]:
    steps = Steps(min(left, MAX_STEPS))
    try:
        return compile_schema(text, steps), steps.used
    except TooCostlyError:
        return (None if left < MAX_STEPS else Schema(None, TOO_LARGE)), steps.used


def _problem_of_object(text: str) -> str:
    """Returns why a text is not a JSON object. Reads no values of a long one, so it costs little."""
    is_short = len(text) <= INLINE_CHARS
    try:
        value = msgspec.json.decode(text) if is_short else _object(text)
    except (msgspec.DecodeError, RecursionError) as error:
        if is_short or not isinstance(error, msgspec.ValidationError):  # of a short one, a number is out of range
            return f"the arguments are not valid JSON: {error}"
        value = None
    return "" if isinstance(value, dict) else "the arguments are not a JSON object"


def _problem_of_value(schema: Schema, value_json: str, max_steps: int) -> str:
    try:
        value = msgspec.json.decode(value_json)
    except (msgspec.DecodeError, RecursionError) as error:
        return f"is not valid JSON: {error}"
    return schema.problem_with(value, max_steps)
