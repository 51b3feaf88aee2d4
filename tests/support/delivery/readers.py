"""Clients that watch: each falls behind, leaves, comes back at any place that it ever had, and compares all the time.

A reader reads in a task of its own. What it finds wrong it keeps until somebody looks.
"""

import asyncio
import copy
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc

from opencode.event.event_pb2 import DELTA_MODE_NONE, WatchEventsRequest, WatchEventsResponse
from opencode.event.session_event_pb2 import RESYNC_REASON_PRUNED, SessionEvent
from opencode.message.message_pb2 import ListMessagesRequest, ListMessagesResponse
from tests.support.clients.conversation import refusal_of
from tests.support.delivery.facts import Facts
from tests.support.delivery.holding import Held, allow_deletion
from tests.support.oracles.fold import ContractBroken, Fold
from tests.support.servers.running import Client

KEPT_PLACES = 12
COMPARED_BATCHES = 8
"""After so many batches a reader compares, besides at each marker."""

PATIENCE_SECONDS = 120.0
"""Time after which a reader counts as hanging."""

Connection = Callable[[], Client]


@dataclass(frozen=True)
class Expected:
    """Expected result of a resume at a place: None where both are possible."""

    resync: bool | None = None
    prunes: bool = False
    """Places get too old here."""


@dataclass(frozen=True)
class Place:
    """Where a client was once."""

    token: str
    held: Any
    at: int
    """When it got the token, by the count of things that had happened."""
    head: int


class Reader:
    """The common part of readers of one session and of all sessions."""

    def __init__(self, name: str, session_id: str, connection: Connection, now: Callable[[], int]) -> None:
        """Args:
        name: For reports.
        session_id: What is watched; "" for all sessions.
        connection: Gives the client of the server that runs now.
        now: The count of things that have happened.
        """
        self.name = name
        self.session_id = session_id
        self.places: list[Place] = []
        self.failure: BaseException | None = None
        self.batches = 0
        self.markers = 0
        """Number of times that it was caught up and compared."""
        self.resyncs = 0
        self._connection = connection
        self._now = now
        self._reads = asyncio.Event()
        self._reads.set()
        self._task: asyncio.Task[None] | None = None
        self._has_begun = False
        """Whether the open watch has told anything: before that, what is held may be of a future that is gone."""
        self._expected = Expected()
        self.moved = asyncio.Event()

    @property
    def is_open(self) -> bool:
        """Whether a watch is open."""
        return self._task is not None and not self._task.done()

    @property
    def lags(self) -> bool:
        """Whether it has stopped reading."""
        return not self._reads.is_set()

    def lag(self) -> None:
        """Stops reading; what comes waits in the connection, and then at the server."""
        self._reads.clear()

    def read_on(self) -> None:
        """Reads again."""
        self._reads.set()

    async def drop(self) -> None:
        """Ends the watch. Idempotent."""
        self.read_on()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
            self._task = None

    def look(self) -> None:
        """Raises what the reader found wrong."""
        if self.failure is not None:
            raise self.failure

    def _open(self, **fields: Any) -> None:
        self._has_begun = False
        request = WatchEventsRequest(session_id=self.session_id, **fields)
        self._task = asyncio.create_task(self._run(request))

    async def _run(self, request: WatchEventsRequest) -> None:
        try:
            while (again := await self._watch(request)) is not None:
                request = again
        except grpc.aio.AioRpcError as error:
            if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
                self._note(error)
        except Exception as error:
            self._note(error)
        finally:
            self.moved.set()

    def _note(self, error: Exception) -> None:
        error.add_note(f"found by {self.name} after {self.batches} batches")
        self.failure = error

    async def _watch(self, request: WatchEventsRequest) -> WatchEventsRequest | None:
        """Reads one stream to its end. Returns the request of the next one; None when there is none."""
        raise NotImplementedError

    def _begin(self, event: SessionEvent) -> None:
        """Looks at the first event of a stream: does it say whether the place is still there, as it must?"""
        self._has_begun = True
        expected, self._expected = self._expected, Expected()
        if event.HasField("resync"):
            pruned = event.resync.reason == RESYNC_REASON_PRUNED
            if (expected.resync is False and not pruned) or (pruned and not expected.prunes):
                raise ContractBroken(f"a place that is there got {event.resync}")
        elif expected.resync:
            raise ContractBroken(f"a place of a future that is gone goes on with {event}")

    def _keep(self, place: Place) -> None:
        self.places.append(place)
        if len(self.places) > KEPT_PLACES:  # of the older half every second one goes: some stay for long
            half = KEPT_PLACES // 2
            self.places[:half] = self.places[:half:2]


class SessionReader(Reader):
    """Follows one session. Compares whenever it is caught up, at the sequence that the list is of."""

    def __init__(self, *arguments: Any, facts: Facts, deltas: bool = True) -> None:
        """Args:
        *arguments: As for Reader.
        facts: What was told of each event.
        deltas: Whether growing texts are told.
        """
        super().__init__(*arguments)
        self.held = Held(self.session_id)
        self._facts = facts
        self._deltas = deltas
        self._awaits: ListMessagesResponse | None = None
        """A list that is newer than what is held: compared when that sequence is reached."""

    def begin(self, *, with_list: bool) -> None:
        """Opens the first watch: with the list and its place, or at the first event."""
        if with_list:
            self._task = asyncio.create_task(self._run_after_list())
        else:
            self._open(from_beginning=True, **self._mode())

    def resume(self, place: Place, expected: Expected, *, fails: bool) -> None:
        """Opens a watch at a place; with `fails` it is refused where it would be told to read anew."""
        self.held = place.held.at_place()
        self._awaits, self._expected = None, expected
        self._open(resume_token=place.token, fail_if_compacted=fails, **self._mode())

    def last_place(self) -> Place | None:
        """Returns where the client is now; None before it has a place."""
        if not self.held.token:
            return None
        return next((p for p in reversed(self.places) if p.token == self.held.token), None)

    def _mode(self) -> dict[str, Any]:
        return {} if self._deltas else {"delta_mode": DELTA_MODE_NONE}

    async def _run_after_list(self) -> None:
        try:
            request = await self._read_anew()
        except grpc.aio.AioRpcError as error:
            gone = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.NOT_FOUND)
            if error.code() not in gone:
                self._note(error)
        except Exception as error:
            self._note(error)
        else:
            await self._run(request)
        self.moved.set()

    async def _read_anew(self) -> WatchEventsRequest:
        listed = await self._list()
        self.held, self._awaits = Held(self.session_id, listed), None
        self._keep_place()
        return WatchEventsRequest(session_id=self.session_id, resume_token=listed.resume_token, **self._mode())

    async def _list(self) -> ListMessagesResponse:
        request = ListMessagesRequest(session_id=self.session_id, page_size=1000)
        return await self._connection().messages.ListMessages(request, timeout=PATIENCE_SECONDS)

    async def _watch(self, request: WatchEventsRequest) -> WatchEventsRequest | None:
        call = self._connection().events.WatchEvents(request)
        try:
            first = True
            async for batch in call:
                await self._reads.wait()
                self.batches += 1
                if first:
                    self._begin(batch.events[0])
                    first = False
                if self._take(batch):
                    self.resyncs += 1
                    return await self._read_anew()
                marked = any(event.HasField("caught_up") or event.HasField("heartbeat") for event in batch.events)
                if marked or self.batches % COMPARED_BATCHES == 0:
                    await self._compare()
                self.moved.set()
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND or self.held.fold.deleted:
                return None
            if error.code() is grpc.StatusCode.OUT_OF_RANGE and request.fail_if_compacted:
                return await self._refused(error)
            raise
        finally:
            call.cancel()
        return None

    async def _refused(self, error: grpc.aio.AioRpcError) -> WatchEventsRequest:
        expected, self._expected = self._expected, Expected()
        refusal = refusal_of(error)
        pruned = refusal.metadata.get("resyncReason") == "PRUNED"
        if refusal.reason != "EVENTS_COMPACTED" or (expected.resync is False and not (pruned and expected.prunes)):
            raise ContractBroken(f"a place that is there was refused: {refusal}")
        return await self._read_anew()

    def _take(self, batch: WatchEventsResponse) -> bool:
        """Folds a batch. Returns whether the client has to read anew."""
        held = self.held
        for event in batch.events:
            self._facts.note(self.session_id, event)
            held.apply(event)
            if event.HasField("resync") or event.conversation_changed.reread:
                return True
            self._compare_awaited()
        held.note_token(batch)
        if batch.resume_token:
            self._keep_place()
        return False

    def _keep_place(self) -> None:
        self._keep(Place(self.held.token, self.held.at_place(), self._now(), self.held.head))

    async def _compare(self) -> None:
        """Compares with what is stored now, or as soon as its sequence is reached."""
        listed = await self._list()
        if listed.sequence < self.held.head:
            raise ContractBroken(f"the list is of {listed.sequence}, and {self.held.head} was told before")
        self._awaits = listed
        self._compare_awaited()

    def _compare_awaited(self) -> None:
        listed, held = self._awaits, self.held
        if listed is None or held.is_ahead or held.head < listed.sequence:
            return
        self._awaits = None
        if held.head == listed.sequence:
            self.markers += 1
            if difference := held.differs(list(listed.messages)):
                raise ContractBroken(f"at sequence {held.head}: {difference}")

    async def until_equal(self) -> None:
        """Waits until all that is stored is held; the session must rest.

        Raises:
            ContractBroken: what is held at that sequence is another thing.
            AssertionError: it never comes.
        """
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while True:
                    self.look()
                    listed = await self._list()
                    if self._has_begun and self.held.head >= listed.sequence:
                        break
                    await self.moved.wait()
                    self.moved.clear()
        except TimeoutError:
            raise AssertionError(f"{self.name} holds {self.held.head}, and stored is {listed.sequence}") from None
        if difference := self.held.differs(list(listed.messages)):
            raise ContractBroken(f"at rest, sequence {self.held.head}: {difference}")


class AllReader(Reader):
    """Follows all sessions: no event of any session is missing or told twice."""

    def __init__(self, *arguments: Any, facts: Facts) -> None:
        super().__init__(*arguments)
        self.fold = Fold()
        self._facts = facts

    def begin(self, *, from_beginning: bool) -> None:
        """Opens a watch from the first event on, or from now."""
        self.fold = Fold()
        self._open(**({"from_beginning": True} if from_beginning else {}))

    def resume(self, place: Place, expected: Expected) -> None:
        """Opens a watch at a place."""
        self.fold = copy.deepcopy(place.held)
        self._expected = expected
        self._open(resume_token=place.token)

    async def _watch(self, request: WatchEventsRequest) -> None:
        call = self._connection().events.WatchEvents(request)
        try:
            for number in itertools.count():
                batch = await call.read()
                if batch is grpc.aio.EOF:
                    return
                await self._reads.wait()
                self.batches += 1
                if not number:
                    self._begin(batch.events[0])
                for event in batch.events:
                    self._facts.note(event.session_id, event)
                    self._take(event)
                if batch.resume_token:
                    heads = {name: one.head or 0 for name, one in self.fold.sessions.items()}
                    self._keep(Place(batch.resume_token, copy.deepcopy(self.fold), self._now(), sum(heads.values())))
                self.moved.set()
        finally:
            call.cancel()

    def _take(self, event: SessionEvent) -> None:
        held = self.fold.sessions.get(event.session_id)
        if held is not None:
            allow_deletion(held, event)
        self.fold.apply(event)
