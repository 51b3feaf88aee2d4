"""Many calls, connections and readers that do not read."""

import asyncio
import contextlib
import itertools

from bench.attacks.attack import Attack, Target
from bench.attacks.wire import ACK, END_HEADERS, HEADERS, SETTINGS, Wire, call, data_frames, frame, message, wire
from bench.client import connect
from opencode.event.event_pb2 import WatchEventsRequest
from opencode.message.message_pb2 import MessagePart, SendMessageRequest, TextPart
from opencode.model.selection_pb2 import ModelSelection
from opencode.provider.provider_pb2 import ProviderInfo
from opencode.session.session_pb2 import GetSessionRequest

GET = "/opencode.session.SessionService/GetSession"
LIST = "/opencode.session.SessionService/ListSessions"
WATCH = "/opencode.event.EventService/WatchEvents"
CHECK_HEALTH = "/grpc.health.v1.Health/Check"
WATCH_HEALTH = "/grpc.health.v1.Health/Watch"

_WORDS = 200_000


async def _open(target: Target, connections: int, use: object, *, web: bool = False, settings: bytes = b"") -> None:
    """Uses connections, and a new one whenever one is closed."""
    opened = [0]

    async def again() -> None:
        while True:
            opened[0] += 1
            with contextlib.suppress(ConnectionError, OSError):
                async with wire(target.host_and_port(web=web), settings) as one:
                    await use(one)  # type: ignore[operator]
            await asyncio.sleep(0.05)

    try:
        await asyncio.gather(*(again() for _ in range(connections)))
    finally:
        print(f"connections: {opened[0]}")


async def _header_storm(target: Target) -> None:
    """Calls with 15 KB of metadata that are never finished."""
    head = call(GET, more=((f"x-{number}", "v" * 1_000) for number in range(15)))

    async def storm(one: Wire) -> None:
        for stream in itertools.count(1, 2):
            await one.send(frame(HEADERS, END_HEADERS, stream, head))
            if stream > 26_000:
                await _closed(one)
                return

    await _open(target, 8, storm)


async def _unread_health(target: Target) -> None:
    """Watches of the health service, which needs no credentials, by clients that take no answer."""
    head = call(WATCH_HEALTH)

    async def watch(one: Wire) -> None:
        for stream in range(1, 4_000, 2):
            await one.send(frame(HEADERS, END_HEADERS, stream, head) + data_frames(stream, message(b""), end=True))
        await _closed(one)

    await _open(target, 20, watch)


_NO_WINDOW = (4).to_bytes(2, "big") + bytes(4)
"""Settings: the server may send nothing on a stream."""


async def _unread_small(target: Target, head: bytes, body: bytes, *, streams: int, web: bool = False) -> None:
    """Calls with small answers by clients that take none of them, and answer pings."""

    async def ask(one: Wire) -> None:
        for stream in range(1, 2 * streams, 2):
            await one.send(frame(HEADERS, END_HEADERS, stream, head) + data_frames(stream, body, end=True))
        await _closed(one)

    await _open(target, 600, ask, web=web, settings=_NO_WINDOW)


async def _unread_checks(target: Target) -> None:
    await _unread_small(target, call(CHECK_HEALTH), message(b""), streams=1_000)


async def _unread_sessions(target: Target) -> None:
    await _unread_small(target, call(GET), message(await _session(target)), streams=1_000)


async def _unread_web_sessions(target: Target) -> None:
    head = call(GET, "application/proto")
    await _unread_small(target, head, await _session(target), streams=100, web=True)


async def _session(target: Target) -> bytes:
    """Returns a request of GetSession."""
    async with connect(target.address) as client:
        return GetSessionRequest(session_id=await client.create_session()).SerializeToString()


async def _bursts(target: Target) -> None:
    """Hundreds of calls in one moment, again and again, on each of a few connections."""
    head = call(LIST)

    async def burst(one: Wire) -> None:
        numbers = itertools.count(1, 2)
        while not one.is_closed:
            began = one.ended
            batch = list(itertools.islice(numbers, 500))
            await one.send(
                b"".join(
                    frame(HEADERS, END_HEADERS, stream, head) + data_frames(stream, message(b""), end=True)
                    for stream in batch
                )
            )
            while one.ended - began < len(batch) and not one.is_closed:
                await asyncio.sleep(0.005)

    await _open(target, 4, burst)


async def _closed(one: Wire) -> None:
    while not one.is_closed:
        await asyncio.sleep(0.1)


async def _connections(target: Target) -> None:
    """Connections on which nothing is said."""
    writers = []
    with contextlib.suppress(OSError):
        for number in range(9_000):
            _, writer = await asyncio.open_connection(*target.host_and_port(web=number % 2 == 1))
            writers.append(writer)
    print(f"connections: {len(writers)}")
    await asyncio.Event().wait()


async def _deaf_watchers(target: Target) -> None:
    """Watchers of an endless answer who never read, though their connections are alive."""
    async with connect(target.address) as client:
        session_id = await client.create_session()
        request = WatchEventsRequest(session_id=session_id).SerializeToString()
        head = call(WATCH)

        async def watch(one: Wire) -> None:
            one.writer.write(frame(SETTINGS, ACK, 0))
            for stream in range(1, 2_000, 2):
                await one.send(
                    frame(HEADERS, END_HEADERS, stream, head) + data_frames(stream, message(request), end=True)
                )
            await _closed(one)

        await asyncio.gather(_open(target, 6, watch), _endless(client, session_id))


async def _endless(client: object, session_id: str) -> None:
    model = ModelSelection(provider=ProviderInfo(id="offline"), model_id="echo")
    text = MessagePart(text=TextPart(text=f"/rate 2000\n/words {_WORDS}"))
    request = SendMessageRequest(session_id=session_id, parts=[text], model=model)
    await asyncio.sleep(1)
    await client.send_bytes(request.SerializeToString())  # type: ignore[attr-defined]
    await asyncio.Event().wait()


ATTACKS = (
    Attack("header_storm", "100,000 calls with 15 KB of metadata", _header_storm),
    Attack("unread_health", "40,000 watches of health", _unread_health),
    Attack("health_unread", "600,000 health checks that nobody reads", _unread_checks, seconds=30.0),
    Attack("small_unread", "600,000 small answers that nobody reads", _unread_sessions, seconds=30.0),
    Attack(
        "web_small_unread", "60,000 small answers that nobody reads, over the web", _unread_web_sessions, seconds=30.0
    ),
    Attack("bursts", "2,000 calls in one moment", _bursts),
    Attack("connections", "9,000 silent connections", _connections),
    Attack("deaf_watchers", "6,000 watchers who do not read", _deaf_watchers, seconds=15.0),
)
