"""The connection to one MCP server. One task owns it, from the first attempt to the stop.

The owner connects, lists the tools and waits until the connection is lost, then starts again after a growing delay.
Each call runs in a task of its own, so that a cancelled caller returns at once while the server is being notified.
"""

import asyncio
import contextlib
import importlib
import random
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from typing import Any, TypeVar

import msgspec
import structlog

from turnwire.event_loop.tasks import retrieve
from turnwire.ports.telemetry.tracing import current_span
from turnwire.ports.tools import (
    Ask,
    QuestionRefused,
    ServerTool,
    SourceState,
    ToolOutcome,
    ToolPause,
    ToolResumption,
    ToolSource,
)
from turnwire.tools.mcp.client import connected_client
from turnwire.tools.mcp.elicitation import Elicitations, input_of, links_of, pause_of
from turnwire.tools.mcp.results import explained, failed, outcome_of, progress_line
from turnwire.tools.mcp.running_call import RunningCall
from turnwire.tools.mcp.tool_list import listed_tools
from turnwire.tools.settings import Backoff, McpSettings

_READY_WAIT_SECONDS = 5.0
"""Maximum time that a call waits for a connection that is being re-established."""

_CHECK_SECONDS = 5.0
"""Maximum time for a server to list its tools when the list is a check that the server works."""

_RELIST_SECONDS = 1.0
"""Minimum interval between two listings, because a server may report changes of its list without end."""

_STABLE_SECONDS = 30.0
"""Duration of a connection after which the next failure counts as the first one: a server may end as soon as it is
ready."""

_SUSPICIOUS_TIMEOUTS = 2
"""Number of consecutive calls that time out after which the server is checked."""

_END_SECONDS = 1.0
"""Maximum time to end a connection before it is cut."""

_STATE_ONLY_SECONDS = 0.25
"""Pause before a call is sent again when the server only needs time."""

T = TypeVar("T")

log = structlog.get_logger()


class _LostError(Exception):
    """The connection is lost; the text gives the reason."""


class McpConnection:
    """One MCP server. Call `start` once and `aclose` at the end, the rest at any time. Used on the event loop only.

    `_ready` is set while `_client` can be used. `_wake` is set for the owner when `_lost` or `_relist` has changed.
    `_calls` has the running calls, which end with the connection.
    """

    def __init__(
        self,
        name: str,
        settings: McpSettings,
        environ: Mapping[str, str],
        backoff: Backoff | None = None,
    ) -> None:
        """Does not connect yet; `start` does."""
        self._name = name
        self._settings = settings
        self._environ = environ
        self._backoff = backoff or Backoff()
        self._state = SourceState.CONNECTING
        self._error = ""
        self._client: Any = None
        self._ready = asyncio.Event()
        self._wake = asyncio.Event()
        self._lost = ""
        self._relist = False
        self._ready_at: float | None = None
        self._problem = ""
        self._timeouts = 0
        self._calls: set[asyncio.Task[Any]] = set()
        self._elicitations = Elicitations(name)
        self._alone = asyncio.Lock() if settings.one_call_at_a_time else None
        self._is_old = settings.protocol == "handshake"
        self._owner: asyncio.Task[None] | None = None
        self._tried = asyncio.Event()
        """Set once the first attempt has ended: the tools are listed, or it failed."""
        self._first_ends = 0.0
        """The end of the wait for the first attempt, on the event loop's clock."""
        self.tools: dict[str, ServerTool] = {}
        """By the MCP server's own names; kept from the last connection while it is lost."""

    @property
    def source(self) -> ToolSource:
        """The server's current state."""
        return ToolSource(name=self._name, state=self._state, error=self._error)

    def start(self) -> None:
        """Starts connecting; returns at once."""
        self._first_ends = asyncio.get_running_loop().time() + self._settings.start_timeout_seconds
        self._owner = asyncio.create_task(self._own(), name=f"mcp {self._name}")

    async def aclose(self) -> None:
        """Ends the connection and its child process, within about a second. Idempotent."""
        owner = self._owner
        while owner is not None and not owner.done():
            owner.cancel()
            await asyncio.wait((owner,), timeout=_END_SECONDS)
        if owner is not None:
            retrieve(owner)  # errors that the SDK raised during the stop are ignored
        self._state = SourceState.STOPPED

    async def wait_tried(self) -> None:
        """Returns when the first attempt has succeeded or failed, or its time has passed. Safe to cancel."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._first_ends):  # ending an attempt takes time too
                await self._tried.wait()

    async def wait_ready(self) -> None:
        """Returns when calls can run, or after the maximum time to establish a connection. Safe to cancel."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.start_timeout_seconds):
                await self._ready.wait()

    async def call(
        self,
        tool: str,
        arguments_json: str,
        say: Callable[[str], None],
        ask: Ask,
        resumption: ToolResumption | None = None,
    ) -> ToolOutcome | ToolPause:
        """Runs a tool; see `turnwire.ports.tools.ServerTools.call`."""
        limit = self._settings.timeout_seconds
        try:
            async with asyncio.timeout(min(limit, _READY_WAIT_SECONDS)):
                await self._ready.wait()
        except TimeoutError:
            return failed(f"the MCP server {self._name!r} is not connected: {self._error or self._state}")
        async with self._alone or contextlib.nullcontext():
            return await self._timed(tool, arguments_json, say, RunningCall(ask), resumption)

    async def _timed(
        self,
        tool: str,
        arguments_json: str,
        say: Callable[[str], None],
        call: RunningCall,
        resumption: ToolResumption | None,
    ) -> ToolOutcome | ToolPause:
        limit = self._settings.timeout_seconds
        work = self._call(tool, arguments_json, say, call, resumption)
        current = asyncio.current_task()
        try:
            outcome = await call.run(self._noted(work), limit, f"mcp call {self._name}.{tool}")
        except TimeoutError:
            self._timeouts += 1
            if self._timeouts >= _SUSPICIOUS_TIMEOUTS:
                self._want_list()  # one timeout may be slow work; several may mean that the server no longer works
            return failed(f"the tool did not answer within {limit:g} seconds")
        except asyncio.CancelledError:
            if current is not None and current.cancelling():
                raise
            return failed(self._gone())
        self._timeouts = 0
        return outcome

    async def _noted(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a call, which ends with the connection."""
        task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        try:
            return await work
        finally:
            self._calls.discard(task)

    async def _call(
        self,
        tool: str,
        arguments_json: str,
        say: Callable[[str], None],
        call: RunningCall,
        resumption: ToolResumption | None,
    ) -> ToolOutcome | ToolPause:
        async def progressed(progress: float, total: float | None, message: str | None) -> None:
            say(progress_line(progress, total, message))

        self._elicitations.begin(call)
        try:
            arguments = msgspec.json.decode(arguments_json, type=dict[str, Any])
            return await self._answer(call, tool, arguments, progressed, input_of(resumption))
        except QuestionRefused as refused:
            return failed(f"the tool asked a question that cannot be asked: {refused}")
        except Exception as error:  # the SDK, pydantic and httpx raise their own errors; the model gets all of them
            if self._ready.is_set():
                self._want_list()  # checks whether the server still works
            return failed(explained(error) if not self._lost else self._gone())
        except asyncio.CancelledError:
            if self._ready.is_set() and not self._is_modern():
                self._elicitations.fade(self._client.session.send_ping)
            raise
        finally:
            self._elicitations.end(call)

    async def _answer(
        self, call: RunningCall, tool: str, arguments: dict[str, Any], progressed: Any, further: dict[str, Any]
    ) -> ToolOutcome | ToolPause:
        """Sends a call until it has a result or has questions for a person.

        It is sent again when the server only needs more time, and after the person has followed the links that it
        requires. The first is limited by the call's time, the second by the number of its questions.
        """
        while True:
            try:
                result = await self._client.session.call_tool(
                    tool,
                    arguments,
                    progress_callback=progressed,
                    meta=self._trace_meta(),
                    allow_input_required=True,
                    **further,
                )
            except Exception as error:
                links = links_of(error) if self._settings.questions else []
                if not links or not await self._elicitations.follow_links(call, links):
                    raise
                continue
            if getattr(result, "result_type", "") != "input_required":
                return await asyncio.to_thread(outcome_of, result)  # the result may have 11 MB of base64
            pause = pause_of(result)
            if pause.questions:
                return pause
            await asyncio.sleep(_STATE_ONLY_SECONDS)
            further = input_of(ToolResumption(pause.state, ()))

    def _trace_meta(self) -> dict[str, str] | None:
        traceparent = current_span().traceparent if self._settings.sends_traceparent else ""
        return {"traceparent": traceparent} if traceparent else None

    def _gone(self) -> str:
        return f"the MCP server {self._name!r} was lost during the call: {self._lost or self._error or 'it stopped'}"

    async def _own(self) -> None:
        failures = 0
        while True:
            try:
                self._state, self._ready_at = SourceState.CONNECTING, None
                await self._serve()
            except Exception as error:  # whatever the error, try again
                failures = 1 if self._has_lasted() else failures + 1
                why = self._lost or explained(error)
                if self._settings.protocol == "auto" and self._state is not SourceState.READY:
                    self._is_old = not self._is_old  # some servers end when they receive a request before the handshake
                say = log.debug if why == self._error else log.warning  # warn once while the error stays the same
                # without the program's last output, which may belong to a call
                reason = self._lost.partition(": ")[0] or why
                say("mcp_server_failed", server=self._name, failures=failures, error=reason)
                self._error = why
                self._tried.set()
            finally:
                self._client = None
            self._state = SourceState.FAILED
            await asyncio.sleep(self._backoff.delay(failures, random.random()))

    async def _serve(self) -> None:
        """Connects and keeps the connection. Returns only by raising the reason for its loss."""
        self._lost, self._relist = "", False
        async with contextlib.AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(self._settings.start_timeout_seconds):
                    self._client = await stack.enter_async_context(self._connected())
                    await self._list()
            except TimeoutError:
                limit = self._settings.start_timeout_seconds
                raise _LostError(f"it was not ready within {limit:g} seconds") from None
            self._state, self._error = SourceState.READY, ""
            self._ready_at = asyncio.get_running_loop().time()
            self._ready.set()
            self._tried.set()
            log.info("mcp_server_ready", server=self._name, tools=len(self.tools))
            listening = asyncio.create_task(self._listen(), name=f"mcp listen {self._name}")
            try:
                await self._watch()
            finally:
                listening.cancel()
                self._ready.clear()
                calls = list(self._calls)
                for call in calls:
                    call.cancel()
                if calls:
                    await asyncio.wait(calls, timeout=_END_SECONDS / 4)

    async def _listen(self) -> None:
        """Receives changes in the list of tools from servers that have to be subscribed to."""
        if not self._is_modern():
            return
        with contextlib.suppress(Exception):  # not all servers support this
            async with self._client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self._want_list()

    def _is_modern(self) -> bool:
        """Returns whether the server speaks a version without requests from the server: 2026-07-28 or newer."""
        from mcp_types.version import MODERN_PROTOCOL_VERSIONS  # noqa: PLC0415

        return self._client.protocol_version in MODERN_PROTOCOL_VERSIONS

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        listed_at = loop.time()
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._lost:
                raise _LostError(self._lost)
            if self._relist and (left := listed_at + _RELIST_SECONDS - loop.time()) > 0:
                loop.call_later(left, self._wake.set)
            elif self._relist:
                self._relist = False
                try:
                    async with asyncio.timeout(_CHECK_SECONDS):
                        await self._list()
                except TimeoutError:
                    raise _LostError("it no longer answers") from None
                listed_at = loop.time()

    def _want_list(self) -> None:
        """Makes the owner list the tools soon, which also shows whether the server works."""
        if not self._relist:  # otherwise it has been woken already
            self._relist = True
            self._wake.set()

    def _has_lasted(self) -> bool:
        now = asyncio.get_running_loop().time()
        return self._ready_at is not None and now - self._ready_at >= _STABLE_SECONDS

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncGenerator[Any]:
        mcp = await asyncio.to_thread(importlib.import_module, "mcp")  # takes a second the first time
        async with connected_client(
            mcp,
            self._settings,
            self._environ,
            lost=self._note_lost,
            mode="legacy" if self._is_old else "auto",
            message_handler=self._handle,
            # without a callback the SDK does not offer elicitation
            elicitation_callback=self._elicitations.answer if self._settings.questions else None,
        ) as client:
            yield client

    async def _list(self) -> None:
        found = await listed_tools(self._name, self._client)
        if found.problem and found.problem != self._problem:  # once while it stays the same
            log.warning("mcp_tools_left_out", server=self._name, why=found.problem)
        self._problem = found.problem
        self.tools = found.tools

    def _note_lost(self, reason: str) -> None:
        self._lost = reason
        self._wake.set()

    async def _handle(self, message: Any) -> None:
        from mcp_types import ElicitCompleteNotification, ToolListChangedNotification  # noqa: PLC0415

        if isinstance(message, ElicitCompleteNotification):
            self._elicitations.complete(message.params.elicitation_id)
        elif isinstance(message, ToolListChangedNotification):
            self._want_list()
