"""Hundreds of tenants at once, and a new tenant with each call: they create sessions, watch them, and list them."""

import asyncio
import contextlib
import itertools
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import grpc
import jwt
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from bench.attacks.attack import TOKEN, Attack, Target
from bench.attacks.costly_requests import again, caller
from opencode.event.event_pb2 import WatchEventsRequest
from opencode.message.message_pb2 import MessagePart, SendMessageRequest, TextPart
from opencode.session.session_pb2 import ListSessionsRequest

TENANTS, SENDERS = 500, 128

_KEY = "around/key.pem"
_TOML = """
[auth]
methods = ["jwt"]
[auth.jwt]
issuer = "bench"
audience = "turnwire"
keys = "{}"
default_role = "writer"
"""

_PARTS = [MessagePart(text=TextPart(text="/rate 20\n/words 40"))]


@contextlib.asynccontextmanager
async def _provider(folder: Path) -> AsyncIterator[str]:
    """Makes the key of an identity provider, and a token for the neighbour."""
    key = ed25519.Ed25519PrivateKey.generate()
    jwk = jwt.algorithms.OKPAlgorithm.to_jwk(key.public_key(), as_dict=True)
    (folder / "jwks.json").write_text(json.dumps({"keys": [{**jwk, "kid": "1", "alg": "EdDSA"}]}))
    (folder / "key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    (folder / TOKEN).write_text(_token(key, "neighbour"))
    yield _TOML.format(folder / "jwks.json")


def _token(key: ed25519.Ed25519PrivateKey, tenant: str) -> str:
    claims = {"iss": "bench", "aud": "turnwire", "exp": int(time.time()) + 3600, "sub": "caller", "tenant": tenant}
    return jwt.encode(claims, key, "EdDSA", {"kid": "1"})


async def _tenants(target: Target, *, new: bool) -> None:
    """Each call of each sender is another tenant's."""
    key = load_pem_private_key((target.folder / _KEY).read_bytes(), None)
    assert isinstance(key, ed25519.Ed25519PrivateKey)
    known = itertools.cycle([_token(key, f"tenant{number}") for number in range(TENANTS)])
    numbers, done = itertools.count(), Counter[str]()

    async with contextlib.AsyncExitStack() as stack:
        callers = [await stack.enter_async_context(caller(target)) for _ in range(4)]

        async def visit(number: int) -> None:
            token = _token(key, f"new{next(numbers)}") if new else next(known)
            one, metadata = callers[number % len(callers)], (("authorization", f"Bearer {token}"),)
            sent = await one.messages.SendMessage(SendMessageRequest(parts=_PARTS), metadata=metadata)
            done["messages"] += 1
            watched = (WatchEventsRequest(session_id=sent.session_id), WatchEventsRequest())
            watches = [one.events.WatchEvents(request, metadata=metadata) for request in watched]
            for watch in watches:
                await watch.read()
                done["watches"] += 1
            await one.sessions.ListSessions(ListSessionsRequest(page_size=100), metadata=metadata)
            done["lists"] += 1
            for watch in watches:
                watch.cancel()

        try:
            await asyncio.gather(*(again(partial(visit, number)) for number in range(SENDERS)))
        finally:
            print(dict(done))


async def _many_watches(target: Target) -> None:
    """Watches of all sessions of thousands of tenants stay open, while each of the tenants creates a session."""
    key = load_pem_private_key((target.folder / _KEY).read_bytes(), None)
    assert isinstance(key, ed25519.Ed25519PrivateKey)
    done = Counter[str]()
    async with contextlib.AsyncExitStack() as stack:
        callers = [await stack.enter_async_context(caller(target)) for _ in range(8)]

        async def stay(number: int) -> None:
            one = callers[number % len(callers)]
            metadata = (("authorization", f"Bearer {_token(key, f'tenant{number}')}"),)
            while True:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    watch = one.events.WatchEvents(WatchEventsRequest(), metadata=metadata)
                    await watch.read()
                    done["watches"] += 1
                    await one.messages.SendMessage(SendMessageRequest(parts=_PARTS), metadata=metadata)
                    done["messages"] += 1
                    while await watch.read() is not grpc.aio.EOF:
                        done["batches"] += 1
                await asyncio.sleep(0.1)

        try:
            await asyncio.gather(*(stay(number) for number in range(3_000)))
        finally:
            print(dict(done))


ATTACKS = (
    Attack(
        "tenants_known",
        "500 tenants that send, watch and list",
        partial(_tenants, new=False),
        around=_provider,
        seconds=20,
    ),
    Attack("tenants_new", "a new tenant with each call", partial(_tenants, new=True), around=_provider, seconds=20),
    Attack("tenants_watching", "3,000 tenants that watch", _many_watches, around=_provider, seconds=30),
)
