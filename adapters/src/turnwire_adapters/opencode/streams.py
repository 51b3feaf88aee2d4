"""The open streams of events, and how far each client was told.

An `EventStream` is one answer of `/event` or `/global/event`. It watches Turnwire for itself and goes on after each
break of that connection. `Streams` holds all that are open, so that an answer of `POST message` can wait for them.
"""

import asyncio
import json
import time
import uuid
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, field

from google.protobuf.timestamp_pb2 import Timestamp
from sse_starlette import ServerSentEvent

from opencode.event.event_pb2 import WatchEventsRequest, WatchEventsResponse
from opencode.event.event_pb2_grpc import EventServiceStub
from opencode.session.session_pb2 import ListSessionsRequest
from opencode.session.session_pb2_grpc import SessionServiceStub
from turnwire_adapters.doors import is_of_door
from turnwire_adapters.opencode.events import Told, Translator
from turnwire_adapters.opencode.objects import PROJECT, Json
from turnwire_adapters.opencode.reading import Reader
from turnwire_client import InvalidArgumentError, NotFoundError, TurnwireError
from turnwire_client.calls import Pauses, is_transient

HEARTBEAT_SECONDS = 10.0
"""As OpenCode's: its web page takes a stream for dead that says nothing for 15 seconds."""
RECENT_SECONDS = 120
"""A stream of all directories begins with the newest turn of each session that changed within this time. A client that
lost its stream opens another one after at most 30 seconds, and does not read its messages again."""
RECENT_SESSIONS = 20
"""Largest number of those sessions: the ones that changed last."""
_KEPT_SESSIONS = 10_000
"""Sessions of which a stream remembers how far it told them."""
WRITTEN_SECONDS = 5.0
"""Maximum time for which an answer waits for streams whose clients do not read."""
OPEN_SECONDS = 10.0
"""Maximum time for which an answer to OpenCode's own program waits for the stream that `opencode run` opens with its
prompt. Its terminal interface, which sends the same prompts, opens none, and does nothing with the answer."""
READ_SECONDS = 1.0
"""Time for which such an answer waits behind what was written to `/event`. `opencode run --attach` exits as soon as it
has the answer, with or without the text of its stream, and tells nobody when it has read that: it neither closes the
stream nor sends anything."""


@dataclass(eq=False, slots=True)
class Prompt:
    """A `POST message` that has not been answered yet."""

    session_id: str
    accepted: "asyncio.Future[str]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """Turnwire's id of the message; "" when it was refused."""
    may_exit: bool = False
    """Whether OpenCode's own program sent it, which may exit with the answer."""
    must_open_by: float = field(default_factory=lambda: asyncio.get_running_loop().time() + OPEN_SECONDS)
    """On the clock of the event loop."""


class Streams:
    """The streams and the unanswered prompts of each caller."""

    def __init__(self) -> None:
        """Begins with none."""
        self._open: dict[str, set[EventStream]] = defaultdict(set)
        """By the caller's token; a stream is in it from before its watch begins until its client is gone."""
        self._prompts: dict[str, set[Prompt]] = defaultdict(set)
        self._opening = asyncio.Event()
        """Set for a moment whenever a stream opens."""

    @contextmanager
    def prompt(self, token: str, session_id: str, *, may_exit: bool) -> Iterator[Prompt]:
        """Registers a prompt while the block runs."""
        prompt = Prompt(session_id, may_exit=may_exit)
        self._prompts[token].add(prompt)
        try:
            yield prompt
        finally:
            if not prompt.accepted.done():
                prompt.accepted.set_result("")
            self._prompts[token].discard(prompt)
            if not self._prompts[token]:
                del self._prompts[token]

    def prompts(self, token: str) -> list[Prompt]:
        """Returns the unanswered prompts of a caller."""
        return list(self._prompts.get(token, ()))

    @contextmanager
    def opened(self, token: str, stream: "EventStream") -> Iterator[None]:
        """Registers a stream while the block runs."""
        self._open[token].add(stream)
        self._opening.set()  # wakes all that wait now
        self._opening.clear()
        try:
            yield
        finally:
            stream.closed()
            self._open[token].discard(stream)
            if not self._open[token]:
                del self._open[token]

    async def written(self, token: str, prompt: Prompt, sequence: int) -> None:
        """Returns when the caller's streams have written a prompt's session up to a sequence, or have ended.

        A client that does not read holds it for `WRITTEN_SECONDS`.
        """
        if prompt.may_exit:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(prompt.must_open_by):
                    while not self._has_streams(token):
                        await self._opening.wait()
        streams = self._open.get(token, ())
        waiting = [asyncio.ensure_future(one.reached(prompt.session_id, sequence)) for one in streams]
        must_read = prompt.may_exit and any(one.may_exit for one in streams)
        if waiting:
            _, late = await asyncio.wait(waiting, timeout=WRITTEN_SECONDS)
            for task in late:
                task.cancel()
        if must_read:
            await asyncio.sleep(READ_SECONDS)

    def _has_streams(self, token: str) -> bool:
        """Returns whether each unanswered prompt of OpenCode's own program can have its own stream."""
        streams = sum(one.may_exit for one in self._open.get(token, ()))
        return streams >= sum(one.may_exit for one in self.prompts(token))


class EventStream:
    """One stream of events: `open` it, then send its `frames`."""

    def __init__(
        self, reader: Reader, streams: Streams, token: str, *, is_global: bool, of_program: bool, last_event_id: str
    ) -> None:
        """Args:
        reader: Of the caller.
        streams: Those of the application.
        token: The caller's.
        is_global: Whether events name their directory, as `/global/event` does.
        of_program: Whether OpenCode's own program reads it.
        last_event_id: The id of the last frame that the client got from an earlier stream; "" for none.
        """
        self._reader = reader
        self._translator = Translator(reader)
        self._streams = streams
        self._token = token
        self._is_global = is_global
        self.may_exit = of_program and not is_global
        """Whether `opencode run` reads it."""
        self._place = last_event_id
        """Where Turnwire's watch goes on; "" for the present."""
        self._resumes = bool(last_event_id)
        self._batches: AsyncGenerator[WatchEventsResponse, None] | None = None
        self._first: list[tuple[list[ServerSentEvent], dict[str, int]]] = []
        """Frames from before the watch had caught up, with the sequences that they reach."""
        self._written: dict[str, int] = {}
        """Sequences by session up to which the client was told; of the sessions that changed last."""
        self._moved = asyncio.Event()
        self._is_closed = False

    async def open(self) -> None:
        """Begins to watch, and returns when the watch has caught up. Raises TurnwireError when it cannot."""
        try:
            await self._catch_up()
        except InvalidArgumentError:
            if not self._resumes:
                raise
            self._resumes, self._place = False, ""  # an id of another server, or of nothing
            await self._catch_up()

    async def frames(self) -> AsyncIterator[ServerSentEvent]:
        """Yields frames until the client is gone, or has to begin anew."""
        assert self._batches is not None
        yield self._frame("server.connected", {}, "")
        for frames, reached in self._first:
            for frame in frames:
                yield frame
            self._note(reached)
        self._first.clear()
        coming: asyncio.Future[WatchEventsResponse] | None = None
        async with aclosing(self._batches):
            try:
                while True:
                    coming = coming or asyncio.ensure_future(anext(self._batches))
                    await asyncio.wait({coming}, timeout=HEARTBEAT_SECONDS)
                    if not coming.done():
                        yield self._frame("server.heartbeat", {}, "")
                        continue
                    batch, coming = coming.result(), None
                    frames, reached, must_begin_anew = await self._take(batch)
                    for frame in frames:
                        yield frame
                    self._note(reached)  # the frame before was written, or this would not have been asked for
                    if must_begin_anew:
                        return
            except (TurnwireError, StopAsyncIteration):
                return  # the token is no longer taken: the next stream says so
            finally:
                if coming is not None:
                    coming.cancel()
                    await asyncio.wait({coming})

    async def reached(self, session_id: str, sequence: int) -> None:
        """Returns when the client was told a session up to a sequence, or is gone."""
        while not self._is_closed and self._written.get(session_id, 0) < sequence:
            await self._moved.wait()

    def closed(self) -> None:
        """Notes that the client is gone. Idempotent."""
        self._is_closed = True
        self._moved.set()

    async def aclose(self) -> None:
        """Ends the watch. Idempotent."""
        if self._batches is not None:
            await self._batches.aclose()

    def _note(self, reached: dict[str, int]) -> None:
        for session_id, sequence in reached.items():
            self._written.pop(session_id, None)
            self._written[session_id] = sequence
        while len(self._written) > _KEPT_SESSIONS:
            del self._written[next(iter(self._written))]
        self._moved.set()  # wakes all that wait now
        self._moved.clear()

    async def _catch_up(self) -> None:
        self._batches = self._watch()
        async for batch in self._batches:
            frames, reached, _ = await self._take(batch)
            self._first.append((frames, reached))
            if any(event.WhichOneof("kind") == "caught_up" for event in batch.events):
                break
        frames, reached = await self._missed()
        self._first.append((frames, reached))

    async def _missed(self) -> tuple[list[ServerSentEvent], dict[str, int]]:
        """Returns what happened before the watch began and the client may not know."""
        told: list[Told] = []
        reached: dict[str, int] = {}
        wanted: dict[str, str] = {}
        for prompt in self._streams.prompts(self._token):  # it was sent when this stream was about to open
            if message_id := await asyncio.shield(prompt.accepted):
                wanted.setdefault(prompt.session_id, message_id)
        if self._is_global:
            for session_id in await self._recent():
                wanted.setdefault(session_id, "")
        for session_id, message_id in wanted.items():
            try:
                told += await self._translator.tell_turn(session_id, message_id)
            except NotFoundError:
                continue
            reached[session_id] = self._translator.read_through[session_id]
        return [self._frame(kind, properties, await self._directory(properties)) for kind, properties in told], reached

    async def _recent(self) -> list[str]:
        client = self._reader.client
        request = ListSessionsRequest(
            page_size=RECENT_SESSIONS, min_update_time=Timestamp(seconds=int(time.time()) - RECENT_SECONDS)
        )
        listed = await client.call(client.stub(SessionServiceStub).ListSessions, request)
        return [session.id for session in listed.sessions if not is_of_door(session)]

    async def _watch(self) -> AsyncGenerator[WatchEventsResponse, None]:
        """Yields batches over as many connections as it takes. Raises TurnwireError when another try is of no use."""
        client, pauses, has_begun = self._reader.client, Pauses(), False
        stub = client.stub(EventServiceStub)
        while True:
            problem: TurnwireError | None = None
            request = WatchEventsRequest(resume_token=self._place) if self._place else WatchEventsRequest()
            try:
                async with aclosing(client.stream(stub.WatchEvents, request)) as batches:
                    async for batch in batches:
                        has_begun, pauses = True, Pauses()
                        yield batch
            except TurnwireError as error:
                if not has_begun or not is_transient(error):
                    raise
                problem = error
            await asyncio.sleep(pauses.after(problem))

    async def _take(self, batch: WatchEventsResponse) -> tuple[list[ServerSentEvent], dict[str, int], bool]:
        """Returns the frames of a batch, the sequences that they reach, and whether the client must begin anew."""
        frames: list[ServerSentEvent] = []
        reached: dict[str, int] = {}
        for event in batch.events:
            if event.WhichOneof("kind") == "resync":
                return frames, reached, True
            for kind, properties in await self._translator.tell(event):
                frames.append(self._frame(kind, properties, await self._directory(properties)))
            if event.sequence:
                reached[event.session_id] = event.sequence
        if batch.resume_token:
            self._place = batch.resume_token
            if frames:
                frames[-1].id = batch.resume_token
        return frames, reached, False

    async def _directory(self, properties: Json) -> str:
        """Returns the directory of the session that an event is about; only `/global/event` tells it."""
        if not self._is_global:
            return ""
        part, info = properties.get("part", {}), properties.get("info", {})
        session_id = properties.get("sessionID") or part.get("sessionID") or info.get("id") or ""
        try:
            return await self._translator.directory(session_id)
        except NotFoundError:
            return "/"

    def _frame(self, kind: str, properties: Json, directory: str) -> ServerSentEvent:
        payload: Json = {"id": f"evt_{uuid.uuid4().hex[:26]}", "type": kind, "properties": properties}
        if self._is_global:
            place = {"directory": directory, "project": PROJECT} if directory else {}
            payload = {**place, "payload": payload}
        return ServerSentEvent(json.dumps(payload, ensure_ascii=False, separators=(",", ":")), sep="\n")
