"""Many calls, connections and metadata; calls that are reset; credentials."""

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from bench.attacks.attack import Attack, Prepared, Seen, Target
from bench.attacks.services import Services, said, services
from bench.attacks.wire import END_HEADERS, HEADERS, RST_STREAM, Wire, call, data_frames, frame, message, wire
from opencode.event.event_pb2 import WatchEventsRequest
from opencode.session.session_pb2 import ListSessionsRequest

HEALTH_WATCH = "/grpc.health.v1.Health/Watch"
GET = "/opencode.session.SessionService/GetSession"
WATCH = "/opencode.event.EventService/WatchEvents"
LIST = "/opencode.session.SessionService/ListSessions"

_KEY = "key.pem"
_SIGN_IN = """
[auth]
methods = ["jwt"]
[auth.jwt]
issuer = "bench"
audience = "turnwire"
keys = {}
default_role = "writer"
"""


async def connected(
    target: Target, seen: Seen, connections: int, use: Callable[[Wire], Awaitable[None]], settings: bytes = b""
) -> None:
    """Uses connections, and a new one whenever one is closed."""

    async def again() -> None:
        while True:
            with contextlib.suppress(OSError):
                async with wire(target.host_and_port(), settings, seen=seen) as one:
                    await use(one)
            await asyncio.sleep(0.05)

    await asyncio.gather(*(again() for _ in range(connections)))


async def _swarm(target: Target, seen: Seen) -> None:
    """50 calls in one moment, again and again, on each of 100 connections."""
    head, body = call(LIST), message(ListSessionsRequest(page_size=1).SerializeToString())

    async def burst(one: Wire) -> None:
        numbers = itertools.count(1, 2)
        while not one.is_closed:
            batch = list(itertools.islice(numbers, 50))
            await one.send(
                b"".join(
                    frame(HEADERS, END_HEADERS, stream, head) + data_frames(stream, body, end=True) for stream in batch
                )
            )
            for stream in batch:
                await one.until_ended(stream)

    await connected(target, seen, 100, burst)


async def _header_storm(target: Target, seen: Seen) -> None:
    """Calls that are never finished."""
    head = call(GET, more=((f"x-{number}", "v" * 1_000) for number in range(15)))

    async def storm(one: Wire) -> None:
        for stream in range(1, 2_000, 2):
            await one.send(frame(HEADERS, END_HEADERS, stream, head))
        await closed(one)

    await connected(target, seen, 8, storm)


async def _health_watches(target: Target, seen: Seen) -> None:
    """Watches without credentials, which have no end."""
    head, body = call(HEALTH_WATCH), message(b"")

    async def watch(one: Wire) -> None:
        for stream in range(1, 2_000, 2):
            await one.send(frame(HEADERS, END_HEADERS, stream, head) + data_frames(stream, body, end=True))
        await closed(one)

    await connected(target, seen, 20, watch)


async def _resets(target: Target, seen: Seen) -> None:
    head = call(GET)

    async def reset(one: Wire) -> None:
        for stream in itertools.count(1, 2):
            await one.send(frame(HEADERS, END_HEADERS, stream, head) + frame(RST_STREAM, 0, stream, b"\0\0\0\x08"))

    await connected(target, seen, 16, reset)


async def _watch_storm(target: Target, seen: Seen) -> None:
    """Watches of all sessions that are opened and closed, while 60 answers stream."""
    async with services(target, seen) as one:
        for _ in range(60):
            await one.messages.SendMessage(said("/rate 20\n/words 2000"))

        async def watch() -> None:
            opened = one.events.WatchEvents(WatchEventsRequest())
            await opened.read()
            opened.cancel()

        await asyncio.gather(*(one.again(watch) for _ in range(64)))


def _sign_in(folder: Path) -> Prepared:
    """Makes the key of an identity provider, and a token for the neighbour."""
    key = Ed25519PrivateKey.generate()
    jwk = jwt.algorithms.OKPAlgorithm.to_jwk(key.public_key(), as_dict=True)
    (folder / "jwks.json").write_text(json.dumps({"keys": [{**jwk, "kid": "1", "alg": "EdDSA"}]}))
    (folder / _KEY).write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return Prepared(_SIGN_IN.format(json.dumps(str(folder / "jwks.json"))), _token(key, "neighbour"))


def _token(key: Ed25519PrivateKey, tenant: str) -> str:
    claims = {"iss": "bench", "aud": "turnwire", "exp": int(time.time()) + 3600, "sub": "caller", "tenant": tenant}
    return jwt.encode(claims, key, "EdDSA", {"kid": "1"})


async def _wrong_tokens(target: Target, seen: Seen) -> None:
    """Tokens of another key, none of them twice, on 4 connections with 250 calls at once."""
    forger, numbers = Ed25519PrivateKey.generate(), itertools.count()

    async def guess(one: Wire) -> None:
        streams = itertools.count(1, 2)

        async def again() -> None:
            while True:
                stream = next(streams)
                token = _token(forger, f"t{next(numbers)}")
                head = call(LIST, more=(("authorization", f"Bearer {token}"),))
                await one.send(frame(HEADERS, END_HEADERS, stream, head))
                await one.until_ended(stream)

        async with asyncio.TaskGroup() as group:
            for _ in range(250):
                group.create_task(again())

    await connected(target, seen, 4, guess)


async def _new_tenants(target: Target, seen: Seen) -> None:
    """Each tenant sends, watches and lists, once."""
    key = load_pem_private_key((target.folder / _KEY).read_bytes(), None)
    assert isinstance(key, Ed25519PrivateKey)
    numbers = itertools.count()

    async def visit(one: Services) -> None:
        metadata = (("authorization", f"Bearer {_token(key, f'new{next(numbers)}')}"),)
        sent = await one.messages.SendMessage(said("/rate 20\n/words 40"), metadata=metadata)
        watch = one.events.WatchEvents(WatchEventsRequest(session_id=sent.session_id), metadata=metadata)
        await watch.read()
        await one.sessions.ListSessions(ListSessionsRequest(page_size=100), metadata=metadata)
        watch.cancel()

    async with services(target, seen) as one:
        await asyncio.gather(*(one.again(lambda: visit(one)) for _ in range(64)))


async def closed(one: Wire) -> None:
    """Waits until the server has closed a connection."""
    while not one.is_closed:
        await asyncio.sleep(0.05)


ATTACKS = (
    Attack(
        "swarm",
        "100 connections with 50 calls each, again and again",
        (),
        "nothing: networks take turns",
        _swarm,
    ),
    Attack(
        "header_storm",
        "8,000 calls with 15 KB of metadata that are never finished",
        ("limits.max_metadata_bytes",),
        "further calls with much metadata",
        _header_storm,
    ),
    Attack(
        "health_watches",
        "20,000 watches of health, without credentials",
        ("limits.max_calls",),
        "further watches, and calls without credentials",
        _health_watches,
    ),
    Attack(
        "rapid_reset",
        "calls that are reset at once, on 16 connections",
        (),
        "nothing: until gRPC has forgotten a call, it counts for limits.max_streams_per_connection",
        _resets,
    ),
    Attack("watch_storm", "64 watches of all sessions, opened and closed", (), "nothing", _watch_storm),
    Attack(
        "wrong_tokens",
        "1,000 calls at once with forged tokens",
        ("WRONG_PER_ADDRESS",),
        "the call",
        _wrong_tokens,
        _sign_in,
    ),
    Attack("tenants_new", "a new tenant with each visit", (), "nothing", _new_tenants, _sign_in),
)
