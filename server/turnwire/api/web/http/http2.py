"""HTTP/2, over TLS and in the clear (with prior knowledge), on the protocol engine h2.

Each request is one task that runs the application. A body is acknowledged as the application reads it, and an answer
waits for the windows of its stream and its connection, so neither side fills the memory. While the peer reads nothing,
nothing is read from it either, and not for ever.

What comes in one piece has room for tens of thousands of frames, so it is read in slices, and everything else has its
turn between them. A peer that sends frames which bring nothing is cut off.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings

from turnwire.api.web.exchange import Receive, Scope, Send
from turnwire.api.web.http.http2_stream import Http2Stream
from turnwire.api.web.http.limits import HEAD_SECONDS, IDLE_SECONDS, MAX_HEAD_BYTES, STALL_SECONDS, Connections

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""With what a connection begins that speaks HTTP/2."""

MAX_STREAMS = 100
"""Requests at a time on one connection."""

STREAM_WINDOW_BYTES = 262_144
"""What a client may send of one body before the application has read it."""

CONNECTION_WINDOW_BYTES = 4 * STREAM_WINDOW_BYTES
"""The same for all requests of one connection."""

HEADER_TABLE_BYTES = 4096
"""What is remembered of the headers of answers to shorten later ones; as much as a client takes by default."""

MAX_RESETS = 200
"""Requests that a client may begin and reset on one connection, more than those that it lets end."""

SLICE_BYTES = 2048
"""What is read of a piece at a time: two hundred of the shortest frames, which take a millisecond."""

MAX_IDLE_FRAMES = 500
"""Frames that bring nothing (pings, settings, priorities, windows, empty data) which a peer may send before it is cut
off. What it brings or reads allows more of them."""

IDLE_DATA_BYTES = 64
"""A shorter frame of data brings nothing, unless it is the last one of a body."""

_PER_REQUEST, _PER_DATA, _SENT_BYTES = 20, 2, 1024
"""How many more idle frames a request and a frame of data allow, and for how many sent bytes one more is allowed."""

_ABORT_SECONDS = 1.0
"""How long a peer that is cut off may take to read why."""

Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class Http2(asyncio.Protocol):
    """One connection."""

    def __init__(
        self,
        application: Application,
        connections: Connections,
        state: MutableMapping[str, Any],
        tasks: set[asyncio.Task[None]],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Args:
        application: Answers requests.
        connections: All of the listener.
        state: What requests get as their `state`.
        tasks: Has all requests that are being answered, of all connections.
        loop: Runs them.
        """
        self._application, self._all, self._state, self._tasks, self._loop = (
            application,
            connections,
            state,
            tasks,
            loop,
        )
        self._http2 = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        self._http2.local_settings = Settings(
            client=False,
            initial_values={
                SettingCodes.MAX_CONCURRENT_STREAMS: MAX_STREAMS,
                SettingCodes.MAX_HEADER_LIST_SIZE: MAX_HEAD_BYTES,
                SettingCodes.INITIAL_WINDOW_SIZE: STREAM_WINDOW_BYTES,
            },
        )
        self._http2.decoder.max_header_list_size = MAX_HEAD_BYTES
        self._transport: asyncio.Transport | None = None
        self._streams: dict[int, Http2Stream] = {}
        self._timer: asyncio.TimerHandle | None = None
        """Runs while there is no request."""
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._is_flushing = False
        self._is_ending = False
        """Whether new requests are refused."""
        self._resets = 0
        self._idle_left = MAX_IDLE_FRAMES
        self._unread: deque[memoryview] = deque()
        """What has come and is not read yet; nothing more is taken from the network meanwhile."""
        self._waits_to_read = False
        """Whether reading it waits for the peer to read."""
        self._stall: asyncio.TimerHandle | None = None
        """Runs while the peer reads nothing."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Takes the connection."""
        self._transport = transport
        self._all.add(self, transport)
        self._http2.initiate_connection()
        self._http2.increment_flow_control_window(CONNECTION_WINDOW_BYTES - self._http2.inbound_flow_control_window)
        self.flush()
        self._wait(HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends all requests."""
        self._all.remove(self)
        self._stop_waiting()
        self._unread.clear()
        self._end_stall()
        self._can_write.set()
        for stream in self._streams.values():
            stream.lose()
        self._streams.clear()

    def pause_writing(self) -> None:
        """Stops: the peer does not read. Answers to its frames would fill the memory too, so none are taken."""
        self._can_write.clear()
        if self._transport is not None:
            self._transport.pause_reading()
            self._stall = self._loop.call_later(STALL_SECONDS, self._transport.abort)

    def resume_writing(self) -> None:
        """Goes on."""
        self._end_stall()
        self._can_write.set()
        self._take_more()

    def data_received(self, data: bytes) -> None:
        """Reads a piece of frames, or begins to."""
        if self._transport is None or self._transport.is_closing():
            return
        if len(data) <= SLICE_BYTES and not self._unread:
            self._read(data)
            self.flush()
            return
        if not self._unread:
            self._transport.pause_reading()
            self._all.work.add(self._read_slice)
        self._unread.append(memoryview(data))

    def _read_slice(self) -> bool:
        """Reads a slice of what has come. Returns whether there is more."""
        if not self._unread or self._transport is None or self._transport.is_closing():
            self._unread.clear()
            return False
        if not self._can_write.is_set():  # the answers to these frames would fill the memory
            self._waits_to_read = True
            return False
        piece = self._unread.popleft()
        if len(piece) > SLICE_BYTES:
            self._unread.appendleft(piece[SLICE_BYTES:])
        self._read(bytes(piece[:SLICE_BYTES]))
        self.flush()
        if not self._unread:
            self._take_more()
        return bool(self._unread)

    def _read(self, data: bytes) -> None:
        assert self._transport is not None
        try:
            for event in self._http2.receive_data(data):
                self._note(event)
        except ProtocolError:  # h2 has said why, in a frame to the peer
            self.flush()
            self._transport.close()
            return
        if self._idle_left <= 0:
            self._cut_off("frames that bring nothing")

    def _take_more(self) -> None:
        """Goes on with what has come, else with what comes."""
        if self._transport is None or self._transport.is_closing() or not self._can_write.is_set():
            return
        if not self._unread:
            self._transport.resume_reading()
        elif self._waits_to_read:
            self._waits_to_read = False
            self._all.work.add(self._read_slice)

    def shutdown(self) -> None:
        """Refuses further requests, and closes the connection when the running ones are answered."""
        self._is_ending = True
        if not self._streams:
            self._close()

    def flush(self) -> None:
        """Writes the frames that are ready."""
        self._is_flushing = False
        if self._transport is not None and not self._transport.is_closing() and (data := self._http2.data_to_send()):
            self._allow(len(data) // _SENT_BYTES)
            self._transport.write(data)

    def flush_soon(self) -> None:
        """Writes the frames that are ready once the present work is done, so that headers and body go together."""
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self.flush)

    async def writable(self) -> None:
        """Returns when there is room for more."""
        await self._can_write.wait()

    def ended(self, stream: Http2Stream) -> None:
        """Forgets a stream whose answer is written or whose request is gone."""
        if self._streams.pop(stream.stream_id, None) is None:
            return
        self.flush()
        if not self._streams:
            if self._is_ending:
                self._close()
            else:
                self._wait(IDLE_SECONDS)

    def _note(self, event: Event) -> None:
        match event:
            case RequestReceived():
                self._allow(_PER_REQUEST)
                self._begin(event)
            case DataReceived():
                self._note_data(event)
            case StreamEnded():
                if (stream := self._streams.get(event.stream_id or 0)) is not None:
                    stream.take_end()
            case StreamReset():
                self._note_reset(event.stream_id or 0)
            case WindowUpdated() | RemoteSettingsChanged():
                self._idle_left -= 1
                # a client may offer gigabytes of memory; what is remembered here is looked through for each header
                encoder = self._http2.encoder
                encoder.header_table_size = min(encoder.header_table_size, HEADER_TABLE_BYTES)
                self._widen(getattr(event, "stream_id", 0) or 0)
            case ConnectionTerminated():
                self.shutdown()
            case _:
                self._idle_left -= 1

    def _note_data(self, event: DataReceived) -> None:
        data = event.data or b""
        if len(data) >= IDLE_DATA_BYTES or event.stream_ended is not None:
            self._allow(_PER_DATA)
        else:
            self._idle_left -= 1
        stream = self._streams.get(event.stream_id or 0)
        if stream is None:
            self._http2.acknowledge_received_data(event.flow_controlled_length, event.stream_id or 0)
        else:
            stream.take(data, event.flow_controlled_length)

    def _widen(self, stream_id: int) -> None:
        """Lets a stream, or for 0 all of them, look at their windows again."""
        for number in [stream_id] if stream_id else list(self._streams):
            if (stream := self._streams.get(number)) is not None:
                stream.widen()

    def _allow(self, frames: int) -> None:
        self._idle_left = min(MAX_IDLE_FRAMES, self._idle_left + frames)

    def _note_reset(self, stream_id: int) -> None:
        stream = self._streams.pop(stream_id, None)
        if stream is not None:
            stream.lose()
        # each costs a task and a log line; a client that only begins requests is an attack
        self._resets += 1
        if self._resets > MAX_RESETS:
            self._cut_off("requests that are reset")
        elif not self._streams:
            self._wait(IDLE_SECONDS)

    def _begin(self, event: RequestReceived) -> None:
        stream_id = event.stream_id or 0
        if self._is_ending:
            self._http2.reset_stream(stream_id, ErrorCodes.REFUSED_STREAM)
            return
        self._stop_waiting()
        scope = self._scope(event)
        stream = Http2Stream(stream_id, self._http2, self)
        self._streams[stream_id] = stream
        task = self._loop.create_task(self._run(scope, stream))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, scope: Scope, stream: Http2Stream) -> None:
        try:
            await self._application(scope, stream.receive, stream.send)
            if not stream.is_lost:
                self._resets = max(0, self._resets - 1)
        finally:
            stream.close()

    def _scope(self, event: RequestReceived) -> Scope:
        pseudo: dict[bytes, bytes] = {}
        headers: list[tuple[bytes, bytes]] = []
        for name, value in event.headers or ():
            if name[:1] == b":":
                pseudo[bytes(name)] = bytes(value)
            else:
                headers.append((bytes(name), bytes(value)))
        if b":authority" in pseudo and not any(name == b"host" for name, _ in headers):
            headers.append((b"host", pseudo[b":authority"]))
        path, _, query = pseudo.get(b":path", b"").partition(b"?")  # CONNECT has none
        assert self._transport is not None
        return {
            "type": "http",
            "http_version": "2",
            "method": pseudo.get(b":method", b"").decode("latin-1"),
            "path": path.decode("latin-1"),
            "raw_path": path,
            "query_string": query,
            "headers": headers,
            "client": self._transport.get_extra_info("peername"),
            "state": self._state,
        }

    def _close(self, code: ErrorCodes = ErrorCodes.NO_ERROR) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._http2.close_connection(code)
            self.flush()
            self._transport.close()

    def _cut_off(self, reason: str) -> None:
        """Closes the connection of a peer that attacks."""
        if self._transport is None or self._transport.is_closing():
            return
        self._all.cut_off(self._transport, reason)
        self._unread.clear()
        self._close(ErrorCodes.ENHANCE_YOUR_CALM)
        self._loop.call_later(_ABORT_SECONDS, self._transport.abort)

    def _end_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _wait(self, seconds: float) -> None:
        self._stop_waiting()
        self._timer = self._loop.call_later(seconds, self._close)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
