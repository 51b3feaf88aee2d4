"""Questions from MCP servers to people: elicitation, in both of its forms.

Up to protocol version 2025-11-25 a server sends a request of its own while a call runs. Over streamable HTTP the
request comes in the stream of its call, and the SDK passes on the context of the call. Over standard input and output
it does not name its call, so it is only accepted while a single call runs. Since 2026-07-28 the call itself ends with
its questions, and is sent again with the replies.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sized
from typing import Any

import msgspec
import structlog

from turnwire.domain.conversation.questions import LinkForm, QuestionAction, QuestionReply, SchemaForm
from turnwire.domain.errors import StorageError
from turnwire.ports.tools import MAX_OPEN_OF_CALL, NewQuestion, QuestionRefused, ToolPause, ToolResumption
from turnwire.tools.mcp.running_call import RunningCall, current_call

MAX_NAME_CHARS = 256
"""Maximum length of a question's name, by which the server identifies it; it is stored."""

_FADING_SECONDS = 5.0
"""Maximum time for a server to process the cancellation of a call."""

_FADING_CHECK_SECONDS = 0.01
"""Interval between checks whether it has; a question waits for that only right after a cancellation."""

_COMPLETED_SECONDS = 30.0
"""Maximum time that a call that required a link waits for the notice that the person has followed it, before it is sent
again."""

_ACTIONS = {QuestionAction.ACCEPT: "accept", QuestionAction.DECLINE: "decline"}
"""All others are "cancel": the person has not decided."""

log = structlog.get_logger()


class Elicitations:
    """Answers the questions of one server. Used on the event loop only.

    `_running` has the running calls. `_fading` has a task for each cancelled call, until the server has processed the
    cancellation: before that, a question may come from that call. `_completions` has, for each link that the server may
    report as done, its name and an event.
    """

    def __init__(self, server: str) -> None:
        """Takes the name of the server."""
        self._server = server
        self._running: list[RunningCall] = []
        self._fading: set[asyncio.Task[None]] = set()
        self._completions: list[tuple[str, asyncio.Event]] = []

    def begin(self, call: RunningCall) -> None:
        """Notes that a call runs now. Everything that its task does from now on belongs to the call."""
        self._running.append(call)
        current_call.set(call)

    def end(self, call: RunningCall) -> None:
        """Notes that a call has ended, or was cancelled."""
        self._running.remove(call)

    def fade(self, heard: Callable[[], Awaitable[object]]) -> None:
        """Waits in a task until the server has processed a cancellation; `heard` returns when it has."""
        task = asyncio.create_task(self._fade(heard), name=f"mcp fading call {self._server}")
        self._fading.add(task)
        task.add_done_callback(self._fading.discard)

    async def _fade(self, heard: Callable[[], Awaitable[object]]) -> None:
        current_call.set(None)  # the call has ended, and this task continues
        with contextlib.suppress(Exception):  # a lost connection has no questions any more
            async with asyncio.timeout(_FADING_SECONDS):
                await heard()

    def complete(self, elicitation_id: str) -> None:
        """Notes that the server has what a link was for."""
        for name, event in self._completions:
            if name == elicitation_id:
                event.set()

    async def answer(self, context: Any, params: Any) -> Any:
        """Asks a person the question in a server's request; returns the answer for the SDK."""
        from mcp_types import INVALID_PARAMS, INVALID_REQUEST, ElicitResult, ErrorData  # noqa: PLC0415 - in the SDK

        call = current_call.get() or await self._only_call()
        if call is None:
            log.warning("mcp_question_refused", server=self._server, running_calls=len(self._running))
            why = "no call runs" if not self._running else "several calls run, and nothing says which of them asks"
            return ErrorData(code=INVALID_REQUEST, message=why)
        try:
            with self._completion(params) as completed:
                reply = await call.ask(_question(params, completed))
        except (QuestionRefused, StorageError) as error:
            return ErrorData(code=INVALID_PARAMS, message=str(error))
        return ElicitResult(action=_action(reply), content=_content(reply))

    async def follow_links(self, call: RunningCall, elicitations: Iterable[Any]) -> bool:
        """Asks a person to open the links that a call requires. Returns whether all were accepted.

        Returns when the server has what they are for, or soon after they were accepted. Raises QuestionRefused.
        """
        with contextlib.ExitStack() as stack:
            links = [(link, stack.enter_context(self._completion(link))) for link in elicitations]
            replies = await asyncio.gather(*(call.ask(_question(link, completed)) for link, completed in links))
            if not links or any(reply.action is not QuestionAction.ACCEPT for reply in replies):
                return False
            with contextlib.suppress(TimeoutError):  # not all servers report it: the call is sent again anyway
                async with asyncio.timeout(_COMPLETED_SECONDS):
                    for _, completed in links:
                        if completed is not None:
                            await completed.wait()
            return True

    @contextlib.contextmanager
    def _completion(self, params: Any) -> Iterator[asyncio.Event | None]:
        """Yields the event that is set when the server has what a link is for; None where the server cannot report
        that.
        """
        name = getattr(params, "elicitation_id", None)
        if not name:
            yield None
            return
        awaited = (name, asyncio.Event())
        self._completions.append(awaited)
        try:
            yield awaited[1]
        finally:
            self._completions.remove(awaited)

    async def _only_call(self) -> RunningCall | None:
        """Returns the only running call, once the server has processed all cancellations; None when several run."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FADING_SECONDS):
                while self._fading or any(call.is_over for call in self._running):  # noqa: ASYNC110 - seldom, and short
                    await asyncio.sleep(_FADING_CHECK_SECONDS)
        return self._running[0] if len(self._running) == 1 else None


def links_of(error: Exception) -> list[Any]:
    """Returns the links that a call requires, as its error names them; empty for other errors.

    Raises QuestionRefused: they are more than may be open.
    """
    from mcp_types import URL_ELICITATION_REQUIRED, ElicitationRequiredErrorData  # noqa: PLC0415 - in the SDK

    failure: Any = getattr(error, "error", None)
    if getattr(failure, "code", None) != URL_ELICITATION_REQUIRED:
        return []
    if isinstance(failure.data, dict) and isinstance(links := failure.data.get("elicitations"), list):
        _check_number(links)
    try:
        return list(ElicitationRequiredErrorData.model_validate(failure.data).elicitations)
    except ValueError:
        return []


def pause_of(result: Any) -> ToolPause:
    """Returns the questions with which a call has ended.

    Raises QuestionRefused: they are more than may be open, or it requests something else.
    """
    requests = result.input_requests or {}
    _check_number(requests)
    questions = []
    for key, request in requests.items():
        if len(key) > MAX_NAME_CHARS:
            raise QuestionRefused(f"its name is longer than {MAX_NAME_CHARS} characters")
        if request.method != "elicitation/create":
            raise QuestionRefused(f"it needs {request.method}, which this client does not have")
        questions.append((key, _question(request.params)))
    return ToolPause(questions=tuple(questions), state=msgspec.json.encode(result.request_state).decode())


def input_of(resumption: ToolResumption | None) -> dict[str, Any]:
    """Returns the arguments of the SDK for a call that is sent again; empty for a new one."""
    if resumption is None:
        return {}
    from mcp_types import ElicitResult  # noqa: PLC0415 - in the SDK

    responses = {key: ElicitResult(action=_action(reply), content=_content(reply)) for key, reply in resumption.replies}
    return {"input_responses": responses or None, "request_state": msgspec.json.decode(resumption.state)}


def _check_number(questions: Sized) -> None:
    """Raises QuestionRefused when a call asks too many questions together.

    The core checks that too, but after work for each of them, and one message of a server has room for 100,000.
    """
    if len(questions) > MAX_OPEN_OF_CALL:
        raise QuestionRefused(f"it asks {len(questions)} questions together, and may ask {MAX_OPEN_OF_CALL}")


def _question(params: Any, completed: asyncio.Event | None = None) -> NewQuestion:
    if params.mode == "url":
        return NewQuestion(prompt=params.message, form=LinkForm(params.url), completed=completed)
    return NewQuestion(prompt=params.message, form=SchemaForm(msgspec.json.encode(params.requested_schema).decode()))


def _action(reply: QuestionReply) -> Any:
    return _ACTIONS.get(reply.action, "cancel")


def _content(reply: QuestionReply) -> Any:
    if reply.action is not QuestionAction.ACCEPT or not reply.content_json:
        return None
    return msgspec.json.decode(reply.content_json)
