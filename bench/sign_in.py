"""The wait of a neighbour while an attacker sends wrong tokens.

The neighbour lists its sessions, one call after the other, with a token that the server knows. The attacker is a
process of its own with 1,000 calls under way and 20,000 tokens. The ceiling is the bare server under the same attack,
which looks at no token and answers at once.
"""

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import jwt
from cryptography.hazmat.primitives.asymmetric import ec

from bench import report
from bench.bare_server import Method
from bench.child import ROOT, bare_server, turnwire
from turnwire.identity.access_tokens import new_token

PER_SECOND = 10_000
PATH = "/opencode.session.SessionService/ListSessions"
SECONDS = 5.0

_REQUEST = b""
"""A request without fields; the bare server answers it with no bytes."""

_TOML = """
[auth]
methods = ["token", "jwt"]
[auth.jwt]
issuer = "bench"
audience = "turnwire"
keys = "jwks.json"
default_tenant = "acme"
default_role = "reader"
"""


async def measure(folder: Path, quick: bool) -> None:
    """Prints the 99th percentile of the neighbour's waiting."""
    report.title("sign_in", f"p99 of a neighbour's unary calls beside {PER_SECOND:,} wrong tokens a second at most")
    seconds = SECONDS / 5 if quick else SECONDS
    key, forger = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    jwk = jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    (folder / "jwks.json").write_text(json.dumps({"keys": [{**jwk, "kid": "1"}]}))
    attacks = {
        "nobody attacks": [],
        "own tokens that do not exist": [new_token() for _ in range(20_000)],
        "web tokens with forged signatures": [_token(forger, number) for number in range(4_000 if quick else 20_000)],
    }
    for name, tokens in attacks.items():
        async with turnwire(folder, _TOML) as server, bare_server(folder) as bare:
            found = await beside(server.address, PATH, _token(key, 0), tokens, seconds)
            ceiling = await beside(bare.address, Method.ECHO.path, "", tokens, seconds)
        report.show([report.Figure(name, found, ceiling, "ms", lower_is_better=True)])


def _token(key: ec.EllipticCurvePrivateKey, number: int) -> str:
    claims = {"iss": "bench", "aud": "turnwire", "exp": int(time.time()) + 3600, "sub": f"caller {number}"}
    return jwt.encode(claims, key, "ES256", {"kid": "1"})


async def beside(address: str, path: str, token: str, wrong: list[str], seconds: float) -> float:
    """Returns the 99th percentile of a neighbour's waiting in milliseconds.

    Args:
        address: The server.
        path: The method that both call, with a request without fields.
        token: The neighbour's token.
        wrong: The tokens of the attacker, one after the other; empty for no attack.
        seconds: How long to measure.
    """
    async with grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        call = channel.unary_unary(path)
        metadata = (("authorization", f"Bearer {token}"),)
        await call(_REQUEST, metadata=metadata)
        with _attacker(address, path, wrong) if wrong else contextlib.nullcontext():
            waited = [w async for w in _waits(call, metadata, seconds)]
    return sorted(waited)[int(len(waited) * 0.99)] * 1000


async def _waits(call: grpc.aio.UnaryUnaryMultiCallable, metadata: object, seconds: float) -> AsyncIterator[float]:
    ends = time.perf_counter() + seconds
    while (began := time.perf_counter()) < ends:
        await call(_REQUEST, metadata=metadata)
        yield time.perf_counter() - began
        await asyncio.sleep(0.005)


@contextlib.contextmanager
def _attacker(address: str, path: str, tokens: list[str]) -> Iterator[None]:
    """Runs the attacker; returns when its first second is over."""
    command = [sys.executable, "-m", "bench.wrong_tokens", address, path, str(PER_SECOND)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("\n".join(tokens))
        process.stdin.close()
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()
            answered = [int(line) for line in process.stdout.read().split()]
            print(f"    answered to the attacker: {sum(answered) / max(1, len(answered)):,.0f} a second")
