"""Ports in memory for tests of the core: time that stands still, ids that repeat, a store that waits to be told."""

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import msgspec

from tests.support.fakes.domain_values import NOW
from tests.support.fakes.loop import settled
from turnwire.core.environment import Environment
from turnwire.core.settings import CoreSettings
from turnwire.domain.accounts import Account
from turnwire.domain.conversation.events import Event
from turnwire.domain.conversation.messages import Message, ModelRef
from turnwire.domain.conversation.permissions import PermissionChoice
from turnwire.domain.conversation.questions import HeldQuestion
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.conversation.sizes import message_bytes
from turnwire.domain.conversation.turns import GenerationOptions, QueueEntry, Turn
from turnwire.domain.errors import MessageNotFound, SessionNotFound, ToolCallNotFound, TurnNotFound
from turnwire.domain.money import Usage
from turnwire.feed.memory import Feed
from turnwire.ports.codec import Codec
from turnwire.ports.commit import Commit, Committed, PutMessage, PutPermission, PutTurn
from turnwire.ports.pages import Bounds, EventPage, Page, PermissionPage, PrunedSession, QueuePage
from turnwire.ports.provider import PreparedRequest, ProviderOrigin, ProviderRequest, StreamItem, Unwritten
from turnwire.ports.store import Moment, Standing, StoredEvent
from turnwire.ports.telemetry.observer import BatchEnd, ModelCallEnd, Observer, ToolCallEnd
from turnwire.ports.tools import (
    Ask,
    ServerTool,
    ServerTools,
    SourceState,
    ToolOutcome,
    ToolPause,
    ToolResumption,
    ToolSource,
)


class ManualClock:
    """Time that moves only when it is told to."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        """Returns the moment."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Moves on."""
        self.now += timedelta(seconds=seconds)


def numbered_ids() -> Callable[[str], str]:
    """Returns a maker of ids such as prt_1, prt_2: each prefix counts for itself."""
    counters: dict[str, itertools.count[int]] = {}
    return lambda prefix: f"{prefix}_{next(counters.setdefault(prefix, itertools.count(1)))}"


class PlainCodec:
    """Frames that a test can read: the event's order and kind."""

    version = 1

    def encode_event(self, event: Event) -> bytes:
        """Returns text such as `1:MessageAdded;`."""
        return f"{event.sequence}:{type(event.kind).__name__};".encode()

    def encode_resume_token(self, token: str) -> bytes:
        """Returns text such as `@AbC;`."""
        return f"@{token};".encode()


@dataclass
class FakeStore:
    """Keeps commits and their futures; a test decides what becomes of each, or `automatic` stores them at once."""

    automatic: bool = True
    commits: list[Commit] = field(default_factory=list)
    futures: list[asyncio.Future[Committed]] = field(default_factory=list)
    sessions_by_id: dict[str, Session] = field(default_factory=dict)
    conversation: tuple[Message, ...] = ()
    log: list[StoredEvent] = field(default_factory=list)
    earliest: int = 0
    pruned: tuple[PrunedSession, ...] = ()
    timeline: str = "0" * 16
    other_timelines: Standing = Standing.REPLACED
    unfinished: tuple[Turn, ...] = ()
    waiting: tuple[Message, ...] = ()
    """The queue of every session."""
    accounted: Account = field(default_factory=Account)
    uploads: Any = None
    """Uploads that the test supplies, such as `tests.support.fakes.uploads.FakeUploads`."""
    followers: list[Callable[[Commit, Committed], None]] = field(default_factory=list)
    on_read: Callable[[], None] = lambda: None
    """Called at the end of each read of the log: what happens meanwhile."""

    token_key = bytes(32)

    def of(self, tenant: str) -> "FakeStore":
        """Returns the same store, which has one tenant."""
        return self

    def account(self, at: datetime) -> Account:
        """Returns the account that the test gives."""
        return self.accounted

    def commit(self, commit: Commit) -> asyncio.Future[Committed]:
        """Remembers the commit."""
        future: asyncio.Future[Committed] = asyncio.get_running_loop().create_future()
        self.commits.append(commit)
        self.futures.append(future)
        if self.automatic:
            committed = self._committed(commit)
            self._tell(commit, committed)
            future.set_result(committed)
        else:
            future.add_done_callback(partial(self._tell_done, commit))
        return future

    def follow(self, follower: Callable[[Commit, Committed], None]) -> None:
        """Has the commits told that are stored."""
        self.followers.append(follower)

    def _committed(self, commit: Commit) -> Committed:
        return Committed(0, len(self.commits))

    def _tell(self, commit: Commit, committed: Committed) -> None:
        for follower in self.followers:
            follower(commit, committed)

    def _tell_done(self, commit: Commit, future: asyncio.Future[Committed]) -> None:
        if not future.cancelled() and future.exception() is None:
            self._tell(commit, future.result())

    async def cached_session(self, session_id: str) -> Session:
        """Returns a session."""
        return await self.session(session_id)

    async def session(self, session_id: str) -> Session:
        """Returns a session."""
        if session_id not in self.sessions_by_id:
            raise SessionNotFound(session_id)
        return self.sessions_by_id[session_id]

    async def history(self, session_id: str) -> tuple[Message, ...]:
        """Returns the conversation."""
        return self.conversation

    async def history_bytes(self, session_id: str) -> int:
        """Returns how long its texts are."""
        return sum(map(message_bytes, self.conversation))

    async def question_bytes(self, session_id: str, message_id: str) -> int:
        """Returns how long the texts of a message are."""
        return sum(message_bytes(message) for message in self.conversation if message.message_id == message_id)

    async def caller_sizes(self, session_id: str, part_ids: frozenset[str], call_ids: frozenset[str]) -> dict[str, int]:
        """Returns those of the conversation that have such calls, and how long their texts are."""
        return {
            message.message_id: message_bytes(message)
            for message in self.conversation
            if any(part.part_id in part_ids or call.call_id in call_ids for part, call in message.tool_calls())
        }

    async def callers(self, session_id: str, message_ids: Collection[str]) -> tuple[Message, ...]:
        """Returns messages of the conversation."""
        return tuple(message for message in self.conversation if message.message_id in message_ids)

    async def message_of_call(self, session_id: str, part_id: str) -> Message:
        """Returns a message of the conversation."""
        for message in self.conversation:
            if any(part.part_id == part_id for part, _ in message.tool_calls()):
                return message
        raise ToolCallNotFound(part_id)

    async def unfinished_turns(self) -> tuple[Turn, ...]:
        """Returns the turns that a dead process left."""
        return self.unfinished

    async def queue(self, session_id: str, page: Page) -> QueuePage:
        """Returns the waiting messages."""
        entries = tuple(QueueEntry(message.message_id, message.turn_id) for message in self.waiting)
        return QueuePage(entries, self.waiting, 0, "")

    async def queue_entries(self, session_id: str) -> QueuePage:
        """Returns the waiting messages without content."""
        return msgspec.structs.replace(await self.queue(session_id, Page()), messages=())

    async def turn(self, session_id: str, turn_id: str) -> Turn:
        """Returns a turn as it was stored last, or as the test gives it."""
        found = {turn.turn_id: turn for turn in self.unfinished}
        for change in self._changes(PutTurn):
            before, turn = found.get(change.turn.turn_id), change.turn
            if change.keeps_settings and before is not None:
                turn = msgspec.structs.replace(turn, tools=before.tools, system=before.system)
            found[turn.turn_id] = turn
        if turn_id not in found:
            raise TurnNotFound(turn_id)
        return found[turn_id]

    async def message(self, session_id: str, message_id: str) -> Message:
        """Returns a message as it was stored last, or as the test gives it. Others go on meanwhile."""
        await asyncio.sleep(0)
        found = {message.message_id: message for message in (*self.conversation, *self.waiting)}
        found |= {change.message.message_id: change.message for change in self._changes(PutMessage)}
        if message_id not in found:
            raise MessageNotFound(message_id)
        return found[message_id]

    async def turn_messages(self, turn_id: str) -> tuple[Message, ...]:
        """Returns those of the conversation."""
        return tuple(message for message in self.conversation if message.turn_id == turn_id)

    async def pending_questions(self, session_id: str) -> tuple[HeldQuestion, ...]:
        """Returns nothing."""
        return ()

    async def open_permissions(self, session_id: str | None, page: Page) -> PermissionPage:
        """Returns all of the session that were stored and have no answer; no page has a size here."""
        assert page == Page()
        stored = {c.permission.permission_id: c.permission for c in self._changes(PutPermission)}
        found = (p for p in stored.values() if p.answer is None and session_id in (None, p.session_id))
        return PermissionPage(tuple(found), "")

    async def always_allowed(self, session_id: str) -> frozenset[str]:
        """Returns the patterns of those that were answered so."""
        answered = [c.permission for c in self._changes(PutPermission)]
        always = [p for p in answered if p.answer and p.answer.response is PermissionChoice.ALWAYS]
        return frozenset(pattern for permission in always for pattern in permission.patterns)

    def _changes(self, kind: type[Any]) -> list[Any]:
        return [change for commit in self.commits for change in commit.changes if isinstance(change, kind)]

    async def session_bounds(self, session_id: str) -> Bounds:
        """Returns what is kept of the log."""
        if session_id not in self.sessions_by_id:
            raise SessionNotFound(session_id)
        return Bounds(self.earliest, self._head())

    async def log_bounds(self) -> Bounds:
        """Returns what is kept of the log."""
        return Bounds(self.earliest, self._head())

    def moment(self, tenant: str) -> Moment:
        """Returns the end of the log, in the only timeline."""
        return Moment(self.timeline, self._head())

    async def moment_after_reads(self, tenant: str, session_id: str) -> Moment:
        """Returns the same."""
        return self.moment(tenant)

    def standing(self, moment: Moment) -> Standing:
        """Returns what the test says of other timelines."""
        return Standing.PAST if moment.timeline == self.timeline else self.other_timelines

    async def session_events(self, session_id: str, after: int, kinds: frozenset[str] | None) -> EventPage:
        """Returns two events at most, then lets things happen."""
        waiting = [s for s in self.log if s.event.sequence > max(after, self.earliest)][:2]
        self.on_read()
        last = waiting[-1].event.sequence if waiting else after
        wanted = [s for s in waiting if kinds is None or type(s.event.kind).__name__ in kinds]
        return EventPage(tuple(s.event for s in wanted), tuple(s.frame for s in wanted), last, self.earliest)

    async def log_events(self, after: int, kinds: frozenset[str] | None) -> EventPage:
        """Returns two events at most; sequences and positions are the same here."""
        page = await self.session_events("", after, kinds)
        pruned = tuple(lost for lost in self.pruned if lost.position > after)
        return msgspec.structs.replace(page, pruned=pruned, settled=self._head())

    def _head(self) -> int:
        return self.log[-1].event.sequence if self.log else self.earliest


class FakeWriter:
    """Writes each request afresh."""

    size_bytes = 0

    def __init__(self, prepare: Callable[[ProviderRequest], PreparedRequest]) -> None:
        self._prepare = prepare

    def unwritten(self, request: ProviderRequest) -> Unwritten:
        """Returns all of the request."""
        files = (f.sha256 for one in request.messages for f in (*one.files(), *one.result_files()))
        return Unwritten(request.messages, frozenset(files))

    def prepare(self, request: ProviderRequest) -> PreparedRequest:
        """Returns what the provider prepares."""
        return self._prepare(request)


class FakeProvider:
    """Yields given items; an exception among them is raised, None waits for ever."""

    provider_id = "offline"
    api = "offline"
    origin = ProviderOrigin("offline")

    def __init__(self, items: Sequence[StreamItem | Exception | None]) -> None:
        self._items = items
        self.requests: list[ProviderRequest] = []
        self.waiting = asyncio.Event()
        """Set when the stream waits for ever."""

    def writer(self) -> FakeWriter:
        """Returns a writer of what `prepare` returns."""
        return FakeWriter(self.prepare)

    def prepare(self, request: ProviderRequest) -> PreparedRequest:
        """Returns a body that names the model."""
        return PreparedRequest(request=request, pieces=(json.dumps({"model": request.model_id}).encode(),))

    async def stream(self, prepared: PreparedRequest) -> AsyncGenerator[StreamItem]:
        """Yields the items."""
        self.requests.append(prepared.request)
        for item in self._items:
            if item is None:
                self.waiting.set()
                await asyncio.Event().wait()
            elif isinstance(item, Exception):
                raise item
            else:
                yield item


@dataclass
class FakeProviders:
    """One provider for every model, at one pico-USD a token."""

    provider: FakeProvider | None = None
    window: int | None = None

    async def get(self, provider_id: str) -> FakeProvider:
        """Returns the provider."""
        if self.provider is None:
            raise KeyError(provider_id)
        return self.provider

    def check(self, model: ModelRef) -> None:
        """Takes every model."""

    def check_options(self, model: ModelRef, options: GenerationOptions) -> None:
        """Takes all options."""

    def capabilities(self, model: ModelRef) -> tuple[str, ...] | None:
        """Says nothing."""

    def cost_pico_usd(self, model: ModelRef, usage: Usage) -> int | None:
        """Counts tokens."""
        return (usage.prompt_total or 0) + (usage.generated_total or 0)

    def context_window_tokens(self, model: ModelRef) -> int | None:
        """Returns the window."""
        return self.window


def server_tool(name: str, schema: str = "{}") -> ServerTool:
    """Returns a tool of the server."""
    return ServerTool(name=name, description="", input_schema_json=schema, source="fake")


class FakeServerTools:
    """Tools that answer when a test says so; an answer for each call, in order."""

    def __init__(self, *tools: ServerTool) -> None:
        self._tools = tools
        self.calls: list[tuple[str, str, Callable[[str], None], asyncio.Future[ToolOutcome | ToolPause]]] = []
        self.asks: list[Ask] = []
        """The function through which each call may ask, in the order of the calls."""
        self.resumptions: list[ToolResumption | None] = []
        """The resumption with which each call continued."""

    async def until_called(self, times: int) -> None:
        """Returns once nothing is ready to run; so many calls run then, or have run."""
        await settled()
        assert len(self.calls) == times

    def sources(self) -> tuple[ToolSource, ...]:
        """Returns the one source."""
        return (ToolSource(name="fake", state=SourceState.READY),)

    def tools(self) -> tuple[ServerTool, ...]:
        """Returns the tools."""
        return self._tools

    async def wait_discovered(self) -> None:
        """Returns at once."""

    async def call(
        self,
        name: str,
        arguments_json: str,
        log: Callable[[str], None],
        ask: Ask,
        resumption: ToolResumption | None = None,
    ) -> ToolOutcome | ToolPause:
        """Waits for the outcome."""
        self.asks.append(ask)
        self.resumptions.append(resumption)
        future: asyncio.Future[ToolOutcome | ToolPause] = asyncio.get_running_loop().create_future()
        self.calls.append((name, arguments_json, log, future))
        return await future


TICK = timedelta(seconds=1)
"""Time between two wake-ups of idle watchers by the feed of fakes."""


class RecordingFeed(Feed):
    """The live feed, with what was published kept in order."""

    def __init__(self, codec: Codec) -> None:
        super().__init__(codec, 100, TICK)
        self.published: list[Event] = []

    def publish(self, tenant: str, event: Event) -> None:
        """Publishes and remembers."""
        self.published.append(event)
        super().publish(tenant, event)


class RecordingObserver(Observer):
    """Keeps what was reported, in order, as the name of the method with its arguments."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, str]] = []
        self.turns: list[tuple[str, Turn]] = []
        self.first_outputs: list[float | None] = []
        self.answers: list[tuple[Message, bool]] = []
        self.model_calls: list[ModelCallEnd] = []
        self.tool_calls: list[ToolCallEnd] = []
        self.batches: list[BatchEnd] = []
        self.fell_behind = 0

    def call_started(self, method: str) -> None:
        """Keeps it."""
        self.calls.append(("started", method, ""))

    def call_ended(self, method: str, code: str, seconds: float) -> None:
        """Keeps it."""
        assert seconds >= 0
        self.calls.append(("ended", method, code))

    def turn_started(self, turn: Turn) -> None:
        """Keeps it."""
        self.turns.append(("started", turn))

    def turn_ended(self, turn: Turn, first_output_seconds: float | None) -> None:
        """Keeps it."""
        self.turns.append(("ended", turn))
        self.first_outputs.append(first_output_seconds)

    def answer_ended(self, turn: Turn, message: Message, *, is_summary: bool) -> None:
        """Keeps it."""
        self.answers.append((message, is_summary))

    def model_call_ended(self, call: ModelCallEnd) -> None:
        """Keeps it."""
        self.model_calls.append(call)

    def tool_call_ended(self, call: ToolCallEnd) -> None:
        """Keeps it."""
        self.tool_calls.append(call)

    def batch_ended(self, batch: BatchEnd) -> None:
        """Keeps it."""
        self.batches.append(batch)

    def watcher_fell_behind(self) -> None:
        """Counts it."""
        self.fell_behind += 1


def make_environment(
    store: FakeStore | None = None,
    providers: FakeProviders | None = None,
    feed: Feed | None = None,
    clock: ManualClock | None = None,
    settings: Mapping[str, object] | None = None,
    tools: ServerTools | None = None,
    observer: Observer | None = None,
) -> Environment:
    """Returns an environment of fakes."""
    return Environment(
        store=store or FakeStore(),  # type: ignore[arg-type]
        feed=feed or RecordingFeed(PlainCodec()),
        providers=providers or FakeProviders(),  # type: ignore[arg-type]
        # without host messages, so that a test sees what it is about; those have tests of their own
        settings=CoreSettings(
            **{"default_model": ModelRef("offline", "echo"), "host_messages": False, **(settings or {})}
        ),
        clock=clock or ManualClock(),
        new_id=numbered_ids(),
        tools=tools or FakeServerTools(),
        observer=observer or Observer(),
    )
