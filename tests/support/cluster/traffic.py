"""Clients that write and watch while nodes fail, and note what they were told for the checks of `guarantees`."""

import asyncio
import contextlib
import itertools
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import grpc
from google.protobuf.duration_pb2 import Duration

from opencode.event.session_event_pb2 import SessionEvent
from opencode.message.content_pb2 import MESSAGE_TYPE_HOST, MESSAGE_TYPE_USER, SessionMessage
from opencode.message.message_pb2 import ExplainContextRequest, SendMessageResponse
from opencode.tool.tool_pb2 import (
    PERMISSION_REPLY_ONCE,
    PERMISSION_REPLY_REJECT,
    PermissionResponse,
    SubmitToolResultRequest,
    ToolCallState,
)
from tests.support.clients.conversation import ask, messages_of, new_session, refusal_of, session_of, tool, words_of
from tests.support.clients.tool_calls import claim, renew
from tests.support.cluster.guarantees import History, SequencesWithoutGaps, ToolCall, check
from tests.support.cluster.nodes import ASKED, NOTED, RETRYABLE, TRY_SECONDS, Nodes
from tests.support.cluster.writes import writes_of
from tests.support.servers.running import Client

T = TypeVar("T")

AT_ONE_NODE = 200
"""Batches that the watch of all sessions reads before it goes to another node."""

PAUSE_SECONDS = 0.3
"""Time between two messages of a session, so that few of them wait for their turns."""

SAID = (
    "say {name}",
    f'/tool {NOTED} {{{{"what": "note {{name}}"}}}}',
    "/rate 20\nsay {name} and let it take as long as ten words",
    f'/tool {ASKED} {{{{"what": "{{name}}"}}}}',
    "say {name} again",
)
"""Words of messages, in turn: calls of a tool, an answer that is being written for a while, and answers at once."""

MAX_UNENDED = 10
"""Messages without an answer after which a client writes no more until one comes."""

LEASE = Duration(seconds=3600)
"""Longer than a run, so that no call is free again."""

WORDS = {PERMISSION_REPLY_ONCE: "once", PERMISSION_REPLY_REJECT: "reject"}

LATE_SECONDS = 60.0
"""Time that a watch has to tell of the last event. Later, the check says what is missing."""


@dataclass
class Session:
    """A session with a client that writes and one that watches it; the watch of all sessions has notes of its own."""

    session_id: str
    history: History = field(default_factory=History)
    among_all: History = field(default_factory=History)
    is_over: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when no more is to be written."""
    is_checked: bool = False
    """Whether its notes are gone: no event may come any more."""
    number: int = 0
    """Number of its newest message."""
    ended: int = 0
    """Turns of which its watch has told that they have ended."""
    answering: list[asyncio.Task[None]] = field(default_factory=list)
    """Clients that answer its permission requests, and that carry out its tool calls."""

    @property
    def name(self) -> str:
        """The name of its newest message."""
        return f"{self.session_id}-{self.number}"


class Traffic:
    """Sessions that come and go. Use `end` for each of them, and `end_watch` at last."""

    def __init__(self, nodes: Nodes, tasks: asyncio.TaskGroup) -> None:
        self._nodes, self._tasks = nodes, tasks
        self._sessions: dict[str, Session] = {}
        self._working: dict[str, tuple[asyncio.Task[None], asyncio.Task[None]]] = {}
        self._watch = tasks.create_task(self._follow(""))
        self.messages = self.events = 0
        """Acknowledged names and watched events that were checked."""
        self.checked = Counter[str]()
        """Counts of the rest that was checked, by their names."""

    async def begin(self, among: Collection[str]) -> Session:
        """Makes a session at one of some nodes, writes to it, and returns it with its first message acknowledged."""
        session = self._session(await self._nodes.surely(new_session, among))
        await self.send(session, among)
        writing = self._tasks.create_task(self._write(session))
        self._working[session.session_id] = writing, self._tasks.create_task(self._follow(session.session_id))
        return session

    async def send(self, session: Session, among: Collection[str] = (), *, again: bool = False) -> None:
        """Sends the next message under a name of its own until it is acknowledged by one of some nodes."""
        session.number += not again
        name = session.name
        words = SAID[session.number % len(SAID)].format(name=name)
        tools = [tool(ASKED)] if ASKED in words else []
        request = ask(words, session.session_id, request_id=name, tools=tools)

        async def call(client: Client) -> SendMessageResponse:
            return await client.messages.SendMessage(request)

        answer = await self._nodes.surely(call, among)
        session.history.answers.setdefault(name, []).append((words, answer.message_id))

    async def end(self, session: Session) -> None:
        """Writes no more to a session, waits until nothing runs in it, and checks what is known of it.

        Raises:
            GuaranteeBroken: what was told and what is stored do not fit.
        """
        session.is_over.set()
        writing, watching = self._working.pop(session.session_id)
        await writing
        history, among_all = session.history, session.among_all
        history.head = await self._at_rest(session.session_id)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LATE_SECONDS):
                for one in (history, among_all):
                    while not one.watched or one.watched[-1][0] < history.head:
                        await asyncio.sleep(0.05)
        watching.cancel()
        for answering in session.answering:
            await answering
        await self._look(session)
        for one in (history, replace(history, watched=among_all.watched, replied=among_all.replied)):
            check(one)
            self.events += len(one.watched)
        self._count(history)
        session.is_checked, session.history, session.among_all = True, History(), History()

    def end_watch(self) -> None:
        """Watches all sessions no more."""
        self._watch.cancel()

    async def _write(self, session: Session) -> None:
        while not session.is_over.is_set():
            await self.send(session)
            if session.number % 3 == 0:
                await self.send(session, again=True)
            await asyncio.sleep(PAUSE_SECONDS)
            while session.number - session.ended > MAX_UNENDED and not session.is_over.is_set():
                await asyncio.sleep(0.05)

    async def _follow(self, session_id: str) -> None:
        """Watches a session, or all for "", at some node; goes on at another one with the token when the stream ends.

        Now and then it ends the stream of all itself: that survives what happens to other nodes.
        """
        token = ""
        while True:
            begin: dict[str, Any] = {"after_sequence": 0} if session_id else {"from_beginning": True}
            place = {"resume_token": token} if token else begin
            call = self._nodes.any_client().events.WatchEvents(session_id=session_id, **place)
            try:
                for _ in itertools.count() if session_id else range(AT_ONE_NODE):
                    async with asyncio.timeout(TRY_SECONDS):
                        batch = await call.read()
                    assert batch is not grpc.aio.EOF
                    token = batch.resume_token or token
                    for event in batch.events:
                        self._note(event, is_of_all=not session_id)
            except TimeoutError:
                self._nodes.failures["no answer"] += 1
            except grpc.aio.AioRpcError as error:
                self._nodes.note(error)
                await asyncio.sleep(0.02)
            finally:
                call.cancel()

    def _session(self, session_id: str) -> Session:
        """Returns what is known of a session, of which a watch may tell before the one who makes it has the answer."""
        return self._sessions.setdefault(session_id, Session(session_id))

    def _note(self, event: Any, *, is_of_all: bool) -> None:
        assert not event.HasField("resync"), "the place of a token is not known any more"
        if not event.sequence:
            return
        session = self._session(event.session_id)
        if session.is_checked:
            raise SequencesWithoutGaps(f"{event.sequence} of a session whose last event was watched")
        kind = event.WhichOneof("kind")
        told = getattr(event, kind) if kind in ("message_added", "message_finished") else None
        history = session.among_all if is_of_all else session.history
        history.watched.append((event.sequence, "" if told is None else told.message.message_id))
        if kind == "permission_replied":
            word = WORDS.get(event.permission_replied.response, "cancelled")
            history.replied.append((event.permission_replied.permission_id, word))
        if not is_of_all:
            session.ended += kind == "turn_ended"
            self._act(session, event)

    async def _at_rest(self, session_id: str) -> int:
        """Returns the newest sequence of a session when nothing runs or waits in it."""
        while True:
            session = await self._nodes.surely(lambda client: session_of(client, session_id))
            if not session.active_turn_id and not session.queued_messages:
                return int(session.head_sequence)
            await asyncio.sleep(0.1)

    async def _look(self, session: Session) -> None:
        """Notes what is stored of a session, as each node has it, and what a model would get."""
        history, found = session.history, list[SessionMessage]()

        async def read(client: Client) -> list[SessionMessage]:
            return await messages_of(client, session.session_id)

        async def explain(client: Client) -> str:
            request = ExplainContextRequest(session_id=session.session_id)
            return str((await client.messages.ExplainContext(request)).request_json)

        for name in self._nodes.names:
            found = await self._nodes.surely(read, [name])
            history.stored.append([(one.message_id, told_by(one)) for one in found])
        history.sent = await self._nodes.surely(explain)
        history.host_texts = [words_of(one) for one in found if one.type == MESSAGE_TYPE_HOST]
        if self._nodes.databases is not None:
            history.writes = writes_of(self._nodes.databases, session.session_id)
        starts = self._nodes.starts()
        for part in (part for message in found for part in message.parts if part.HasField("tool_use")):
            call = history.calls.setdefault(part.tool_use.id, ToolCall())
            call.output = part.tool_use.output if part.tool_use.status == "success" else None
            if part.tool_use.name == NOTED and part.tool_use.input_json:  # else its message was cut off before
                call.starts = starts[json.loads(part.tool_use.input_json)["what"].removeprefix("note ")]

    def _count(self, history: History) -> None:
        self.messages += len(history.answers)
        self.checked["tool calls"] += len(history.calls)
        self.checked["that were carried out"] += sum(call.starts for call in history.calls.values())
        self.checked["approvals"] += len(history.approvals)
        self.checked["host texts"] += len(history.host_texts)
        self.checked["writes"] += len(history.writes or ())
        self.checked["owners"] += len({write.writer for write in history.writes or ()})

    def _act(self, session: Session, event: SessionEvent) -> None:
        """Has two clients answer a permission request, or carry out a tool call, at the same moment."""
        if event.HasField("permission_asked"):
            permission = event.permission_asked.permission
            acts = [self._answer(session, permission.id, word) for word in ("once", "reject")]
        elif event.HasField("tool_call_updated") and is_open(event.tool_call_updated.state):
            acts = [self._carry_out(session, event.tool_call_updated.state.id, holder) for holder in ("one", "other")]
        else:
            return
        session.answering += [self._tasks.create_task(act) for act in acts]

    async def _answer(self, session: Session, permission_id: str, word: str) -> None:
        request = PermissionResponse(session_id=session.session_id, permission_id=permission_id, response=word)
        accepted = await self._unless(
            ("PERMISSION_ALREADY_ANSWERED",), lambda client: client.permissions.RespondToPermission(request)
        )
        session.history.approvals.setdefault(permission_id, []).append((word, accepted is not None))

    async def _carry_out(self, session: Session, call_id: str, holder: str) -> None:
        """Claims a call, and submits a result, also without a lease. A lease is kept while nodes come and go."""
        session_id, call = session.session_id, session.history.calls.setdefault(call_id, ToolCall())
        request = claim(session_id, call_id, holder, request_id=f"{call_id}-{holder}", duration=LEASE)
        claimed = await self._unless(
            ("LEASE_HELD", "TOOL_CALL_ALREADY_SETTLED"), lambda client: client.tools.ClaimToolCall(request)
        )
        submitting = SubmitToolResultRequest(session_id=session_id, tool_call_id=call_id, output=f"done by {holder}")
        if claimed is not None:
            call.starts += 1
            submitting.lease_id = claimed.lease.lease_id
            renewal = renew(session_id, call_id, claimed.lease, request_id=f"{call_id}-renewed", duration=LEASE)
            await self._nodes.surely(lambda client: client.tools.RenewToolCall(renewal))
        taken = await self._unless(
            ("LEASE_HELD", "LEASE_LOST", "TOOL_CALL_ALREADY_SETTLED"),
            lambda client: client.tools.SubmitToolResult(submitting),
        )
        call.starts += claimed is None and taken is not None
        call.results.append((submitting.output, taken is not None))

    async def _unless(self, reasons: Collection[str], call: Callable[[Client], Awaitable[T]]) -> T | None:
        """Makes a call until some node answers it; returns None when it is refused for one of the reasons."""

        async def attempt(client: Client) -> T | None:
            try:
                return await call(client)
            except grpc.aio.AioRpcError as error:
                if error.code() in RETRYABLE or refusal_of(error).reason not in reasons:
                    raise
                return None

        return await self._nodes.surely(attempt)


def is_open(call: ToolCallState) -> bool:
    """Returns whether a client may claim a call, which is of the tool ASKED."""
    is_ready = call.HasField("started_at") and not call.HasField("permission_id")
    return call.name == ASKED and call.status == "pending" and is_ready and not call.HasField("lease")


def told_by(message: SessionMessage) -> str:
    """Returns the words of a message; those of an answer, which repeat what was asked, with a mark."""
    return words_of(message) if message.type == MESSAGE_TYPE_USER else f"answer: {words_of(message)}"
