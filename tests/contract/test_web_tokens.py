"""JSON web tokens: which are taken, which are not and why, and where the keys come from."""

import asyncio
import contextlib
import http.server
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from structlog.testing import capture_logs

from tests.support.servers.authority import AUDIENCE, ISSUER, IdentityProvider, assembled, jwks
from tests.support.servers.raw import RawServer, read_request
from turnwire.domain.errors import TooManySignIns, Unauthenticated
from turnwire.domain.principal import Principal, Role
from turnwire.identity.settings import JwtSettings
from turnwire.identity.web_tokens import key_set, key_source
from turnwire.identity.web_tokens.budget import WRONG_PER_ADDRESS
from turnwire.identity.web_tokens.verification import WRONG_SECONDS, JsonWebTokens

PROVIDER = IdentityProvider()
EVE = Principal(tenant="acme", subject="eve", role=Role.WRITER)


class Clock:
    """The time of day, which tests move on."""

    ahead = 0.0

    def __call__(self) -> float:
        """Returns the time."""
        return time.time() + self.ahead


def settings(keys: object, **changes: Any) -> JwtSettings:
    """The settings for the provider."""
    return JwtSettings(**{"issuer": ISSUER, "audience": AUDIENCE, "keys": str(keys), **changes})


@contextlib.asynccontextmanager
async def web_tokens(
    keys: object, clock: Callable[[], float] = time.time, **changes: Any
) -> AsyncIterator[JsonWebTokens]:
    """Web tokens that have read their keys."""
    tokens = JsonWebTokens(settings(keys, **changes), clock)
    await tokens.start()
    try:
        yield tokens
    finally:
        await tokens.aclose()


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """The provider's keys in a file."""
    file = tmp_path / "jwks.json"
    file.write_text(jwks(PROVIDER))
    return file


async def cause(tokens: JsonWebTokens, token: str) -> str:
    """Returns why a token is refused."""
    with pytest.raises(Unauthenticated) as refused:
        assert tokens.recall(token) is None
        await tokens.verify(token, "192.0.2.1")
    return refused.value.cause


async def test_a_token_is_checked_once(keys: Path) -> None:
    """Then it is known, until it ends."""
    clock = Clock()
    async with web_tokens(keys, clock) as tokens:
        token = PROVIDER.token()
        assert tokens.recall(token) is None
        assert await tokens.verify(token, "") == EVE
        assert tokens.recall(token) == EVE
        clock.ahead = 3600 + 15
        assert tokens.recall(token) == EVE
        clock.ahead = 3600 + 31
        assert await cause(tokens, token) == "an expired JWT"


def hs256_with_the_public_key() -> str:
    """Returns a token for libraries that let it choose between secrets and public keys."""
    header, claims = {"alg": "HS256", "kid": "first"}, PROVIDER.claims()
    signed = assembled(header, claims).rpartition(".")[0]
    algorithm = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    return assembled(header, claims, algorithm.sign(signed.encode(), PROVIDER.public_pem()))


def now(seconds: float) -> int:
    """Returns the time in so many seconds."""
    return int(time.time() + seconds)


HEADER = {"alg": "ES256", "kid": "first"}
WRONG: dict[str, tuple[Callable[[], str], str]] = {
    "expired": (lambda: PROVIDER.token(exp=now(-60)), "an expired JWT"),
    "not yet valid": (lambda: PROVIDER.token(nbf=now(600)), "a JWT that is not valid yet"),
    "issued in the future": (lambda: PROVIDER.token(iat=now(600)), "a JWT that fails its check"),
    "without an end": (
        lambda: PROVIDER.token(exp=None),
        "a JWT whose parts cannot be read: Object missing required field `exp`",
    ),
    "an end that is no number": (lambda: PROVIDER.token(exp="soon"), "a JWT whose parts cannot be read"),
    "another issuer": (lambda: PROVIDER.token(iss="https://evil.example"), "a JWT of another issuer"),
    "another audience": (lambda: PROVIDER.token(aud="mail"), "a JWT for another audience"),
    "other audiences": (lambda: PROVIDER.token(aud=["mail", "turnwire2"]), "a JWT for another audience"),
    "forged": (lambda: IdentityProvider().token(), "a JWT that fails its check: InvalidSignatureError"),
    "another key's": (lambda: IdentityProvider("second").token(), "a JWT with an unknown key"),
    "alg none": (
        lambda: assembled({"alg": "none", "kid": "first"}, PROVIDER.claims()) + "AA",
        "a JWT with an algorithm that is not allowed",
    ),
    "alg none without a signature": (lambda: assembled({"alg": "none"}, PROVIDER.claims()), "not of the form of a JWT"),
    "HS256 with the public key": (hs256_with_the_public_key, "a JWT with an algorithm that is not allowed"),
    "an algorithm of another key": (
        lambda: assembled({"alg": "RS256", "kid": "first"}, PROVIDER.claims(), b"x" * 256),
        "a JWT with an unknown key",
    ),
    "a critical header": (
        lambda: jwt.encode(PROVIDER.claims(), PROVIDER.key, "ES256", {"kid": "first", "crit": ["exp"], "exp": 1}),
        "a JWT that fails its check",
    ),
    "no signature": (lambda: assembled(HEADER, PROVIDER.claims(), b"xx"), "a JWT that fails its check"),
    "garbage": (lambda: "\x00\xff.\ud800.€", "not of the form of a JWT"),
    "garbage in base64": (lambda: assembled(b"\xff\xfe", b"\x00", b"\x00\x01"), "a JWT whose parts cannot be read"),
    "deep": (lambda: assembled(HEADER, b"[" * 6000, b"xx"), "a JWT whose parts cannot be read"),
    "a huge number": (
        lambda: assembled(
            HEADER, b'{"iss":"' + ISSUER.encode() + b'","aud":"turnwire","exp":1' + b"0" * 4000 + b"}", b"xx"
        ),
        "a JWT",
    ),
    "a list": (lambda: assembled([], [], b"xx"), "a JWT whose parts cannot be read"),
    "empty": (lambda: "", "not of the form of a JWT"),
    "huge": (lambda: PROVIDER.token(more="x" * 9000), "not of the form of a JWT"),
    "without a tenant": (lambda: PROVIDER.token(tenant=None), "a JWT without a tenant"),
    "a tenant that is no name": (lambda: PROVIDER.token(tenant="../acme"), "a JWT without a tenant"),
    "many tenants": (lambda: PROVIDER.token(tenant=["acme", "other"]), "a JWT without a tenant"),
    "without a subject": (lambda: PROVIDER.token(sub=""), "a JWT without a subject"),
    "a subject that cannot be printed": (lambda: PROVIDER.token(sub="e\nve"), "a JWT without a subject"),
    "without a role": (lambda: PROVIDER.token(role=None), "a JWT without a role"),
    "an unknown role": (lambda: PROVIDER.token(role="king"), "a JWT without a role"),
    "the role of nobody": (lambda: PROVIDER.token(role=""), "a JWT without a role"),
}


@pytest.mark.parametrize("kind", WRONG)
async def test_a_wrong_token_is_refused(keys: Path, kind: str) -> None:
    """With its cause for the log, which has no part of the token; the second time from memory."""
    make, expected = WRONG[kind]
    token = make()
    async with web_tokens(keys) as tokens:
        found = await cause(tokens, token)
        assert found.startswith(expected)
        assert await cause(tokens, token) == found


async def test_a_wrong_token_is_checked_again_after_a_while(keys: Path) -> None:
    """It is remembered for a minute: one that was early becomes right."""
    clock = Clock()
    async with web_tokens(keys, clock) as tokens:
        token = PROVIDER.token(nbf=int(time.time()) + 40)
        assert await cause(tokens, token) == "a JWT that is not valid yet"
        clock.ahead = WRONG_SECONDS + 1
        assert tokens.recall(token) is None


async def test_wrong_signatures_of_one_address_use_up_their_share(keys: Path) -> None:
    """Then the address waits, and others are identified as before."""
    async with web_tokens(keys) as tokens:
        tokens._budget._clock = lambda: 0.0
        forger = IdentityProvider()
        for number in range(WRONG_PER_ADDRESS):
            with pytest.raises(Unauthenticated):
                await tokens.verify(forger.token(n=number), "192.0.2.1")
        with pytest.raises(TooManySignIns):
            await tokens.verify(PROVIDER.token(), "192.0.2.1")
        assert await tokens.verify(PROVIDER.token(), "192.0.2.2") == EVE


@pytest.mark.parametrize(
    ("changes", "claims", "principal"),
    [
        (
            {"tenant_claim": "https://acme.example/tenant", "subject_claim": "user.name"},
            {"https://acme.example/tenant": "t1", "user": {"name": "Eve"}},
            Principal(tenant="t1", subject="Eve", role=Role.WRITER),
        ),
        (
            {"role_claim": "realm_access.roles", "roles": {"staff": "reader", "boss": "admin"}},
            {"realm_access": {"roles": ["staff", 7, "boss", "other"]}},
            Principal(tenant="acme", subject="eve", role=Role.ADMIN),
        ),
        (
            {"default_tenant": "rest", "default_role": "reader"},
            {"tenant": None, "role": "king"},
            Principal(tenant="rest", subject="eve", role=Role.READER),
        ),
        ({}, {"aud": ["mail", "turnwire"]}, EVE),
    ],
)
async def test_claims_are_mapped(
    keys: Path, changes: dict[str, Any], claims: dict[str, Any], principal: Principal
) -> None:
    """By names, by paths, by a table of roles where the highest counts, by defaults."""
    async with web_tokens(keys, **changes) as tokens:
        assert await tokens.verify(PROVIDER.token(**claims), "") == principal


async def test_keys_are_read_again_for_an_unknown_key(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most once in a while; a key that has gone takes its tokens with it."""
    monkeypatch.setattr(key_set, "RETRY_SECONDS", 0.0)
    async with web_tokens(keys) as tokens:
        old = PROVIDER.token()
        assert await tokens.verify(old, "") == EVE
        second = IdentityProvider("second")
        keys.write_text(jwks(second))
        assert await tokens.verify(second.token(), "") == EVE
        assert tokens.recall(old) is None
        assert await cause(tokens, old) == "a JWT with an unknown key"
        monkeypatch.setattr(key_set, "RETRY_SECONDS", 1000.0)
        keys.write_text(jwks(PROVIDER))
        assert await cause(tokens, old) == "a JWT with an unknown key"


@pytest.mark.parametrize("document", ["", "{}", '{"keys": []}', '{"keys": 1}', "[" * 100_000, "x" * (1 << 21)])
async def test_keys_that_cannot_be_read_leave_the_old_ones(
    keys: Path, document: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log has it."""
    monkeypatch.setattr(key_set, "RETRY_SECONDS", 0.0)
    async with web_tokens(keys) as tokens:
        keys.write_text(document)
        with capture_logs() as lines:
            assert await cause(tokens, IdentityProvider("second").token()) == "a JWT with an unknown key"
        assert [line["event"] for line in lines] == ["keys_not_read"]
        assert await tokens.verify(PROVIDER.token(), "") == EVE


async def test_secrets_and_weak_keys_are_no_keys(keys: Path) -> None:
    """Neither are keys for encryption, nor keys of kinds that no signature here has."""
    weak = rsa.generate_private_key(65537, 1024)
    rsa_jwk = jwt.algorithms.RSAAlgorithm.to_jwk(weak.public_key(), as_dict=True)
    secret = {"kty": "oct", "k": "c2VjcmV0", "kid": "secret"}
    encryption = jwt.algorithms.ECAlgorithm.to_jwk(PROVIDER.key.public_key(), as_dict=True)
    for entry in (rsa_jwk, secret, {**encryption, "use": "enc"}, {"kty": "EC"}, 7, None):
        assert key_set._key(entry) is None


class Provider(http.server.BaseHTTPRequestHandler):
    """Answers what the test has set."""

    status, body, requests = 200, b"", 0
    headers_sent: ClassVar[dict[str, str]] = {}

    def do_GET(self) -> None:
        """Answers."""
        type(self).requests += 1
        self.send_response(self.status)
        for name, value in self.headers_sent.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_args: object) -> None:
        """Writes nothing."""


@pytest.fixture
def provider() -> Iterator[tuple[type[Provider], str]]:
    """A provider on this machine, and the URL of its keys."""
    handler = type("Handler", (Provider,), {"body": jwks(PROVIDER).encode(), "requests": 0})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield handler, f"http://127.0.0.1:{server.server_port}/jwks"
    server.shutdown()
    server.server_close()
    thread.join()


async def test_keys_come_from_a_url(provider: tuple[type[Provider], str]) -> None:
    """Once, however many calls wait for them; an answer that is an error leaves what is known."""
    handler, url = provider
    async with web_tokens(url) as tokens:
        assert await tokens.verify(PROVIDER.token(), "") == EVE
        handler.status = 500
        tokens._keys._read_at = float("-inf")
        unknown = IdentityProvider("second")
        causes = await asyncio.gather(*(cause(tokens, unknown.token(n=n)) for n in range(100)))
        assert set(causes) == {"a JWT with an unknown key"}
        assert handler.requests == 2
        assert await tokens.verify(PROVIDER.token(n=1), "") == EVE


@pytest.mark.parametrize(
    ("status", "headers", "body"),
    [(302, {"Location": "http://127.0.0.1:1/elsewhere"}, b""), (200, {}, b"x" * (1 << 21)), (404, {}, b"{}")],
)
async def test_a_provider_that_answers_badly_stops_no_start(
    provider: tuple[type[Provider], str], status: int, headers: dict[str, str], body: bytes
) -> None:
    """Redirects are not followed, and not more than the limit is read; the keys come when it is well again."""
    handler, url = provider
    right, handler.status, handler.headers_sent, handler.body = handler.body, status, headers, body
    with capture_logs() as lines:
        async with web_tokens(url) as tokens:
            assert [line["event"] for line in lines] == ["keys_not_read"]
            assert await cause(tokens, PROVIDER.token()) == "a JWT with an unknown key"
            handler.status, handler.headers_sent, handler.body = 200, {}, right
            tokens._keys._read_at = float("-inf")
            assert await tokens.verify(PROVIDER.token(), "") == EVE


@pytest.mark.parametrize(
    ("begun", "more"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"a"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"a"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b"a"),
    ],
    ids=["head", "provisional answers", "length of a chunk", "body"],
)
async def test_an_answer_that_never_ends_keeps_no_old_keys(
    begun: bytes, more: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection is cut when its time is over, the log tells it, and the keys are read again later."""
    document: bytes | None = jwks(PROVIDER).encode()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        if document is not None:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(document), document))
            await reader.read()
        writer.write(begun)
        while document is None:
            writer.write(more)
            await writer.drain()
            await asyncio.sleep(0.01)

    async with RawServer(talk) as server, web_tokens(f"{server.base_url}/jwks") as tokens:
        old = PROVIDER.token()
        assert await tokens.verify(old, "") == EVE
        await server.left.wait()
        server.left.clear()
        document, tokens._keys._read_at = None, float("-inf")
        with monkeypatch.context() as hurried, capture_logs() as lines:
            hurried.setattr(key_source, "FETCH_SECONDS", 0.2)
            second = IdentityProvider("second")
            assert await cause(tokens, second.token()) == "a JWT with an unknown key"
        told = [(line["event"], line["problem"]) for line in lines]
        assert told == [("keys_not_read", "not read within 0.2 seconds")]
        await server.left.wait()
        document, tokens._keys._read_at = jwks(second).encode(), float("-inf")
        assert await tokens.verify(second.token(n=1), "") == EVE
        assert await cause(tokens, old) == "a JWT with an unknown key"


@pytest.mark.parametrize("is_written", [False, True])
async def test_a_pipe_is_no_file_of_keys(is_written: bool, tmp_path: Path) -> None:
    """Nobody may ever write to it or end it, and the thread that waits would hold up the end of the process."""
    path = tmp_path / "jwks.json"
    os.mkfifo(path)
    source = key_source.KeySource(str(path))
    writer = os.open(path, os.O_RDWR) if is_written else None
    with pytest.raises(key_source.KeysUnavailable, match="is not a regular file"):
        await source.read()
    if writer is not None:
        os.close(writer)
    path.unlink()
    path.write_text(jwks(PROVIDER))
    assert await source.read() == jwks(PROVIDER).encode()
