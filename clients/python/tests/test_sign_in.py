"""Clients that sign in: over TLS, with tokens that end."""

from pathlib import Path

import pytest

from tests.support.servers.authority import AUDIENCE, ISSUER, Authority, IdentityProvider, jwks
from tests.support.servers.running import running_server
from turnwire.identity.web_tokens import key_set
from turnwire_client import Client, PermissionDeniedError, Tls, UnauthenticatedError, UnavailableError

TOML = f"""
[tls]
cert = "server.pem"
key = "server.key"
[auth]
methods = ["jwt"]
[auth.jwt]
issuer = "{ISSUER}"
audience = "{AUDIENCE}"
keys = "jwks.json"
"""


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    """The authority of a server's certificate, whose files are written."""
    authority = Authority("Test")
    authority.issue("server").write(tmp_path, "server")
    path = tmp_path / "ca.pem"
    path.write_bytes(authority.pem)
    return path


async def test_a_caller_is_known_over_tls(tmp_path: Path, ca: Path) -> None:
    """The token goes with every call; what the role does not allow is refused."""
    provider = IdentityProvider()
    (tmp_path / "jwks.json").write_text(jwks(provider))
    async with running_server(tmp_path, TOML) as server:
        token = provider.token(sub="ada", role="writer")
        async with Client.connect(server.address, tls=Tls(ca=ca), token=token) as client:
            assert client.server.caller.subject == "ada"
            assert await client.ask("Hello") == "Hello"
        reading = Client.connect(server.address, tls=Tls(ca=ca.read_bytes()), token=provider.token(role="reader"))
        async with reading as client:
            with pytest.raises(PermissionDeniedError) as caught:
                await client.send("Hello")
            assert caught.value.metadata["role"] == "reader"


async def test_an_unknown_authority_is_refused(tmp_path: Path, ca: Path) -> None:
    """By the client, before the token is sent."""
    (tmp_path / "jwks.json").write_text(jwks(IdentityProvider()))
    async with running_server(tmp_path, TOML) as server:
        stranger = Tls(ca=Authority("Other").pem)
        with pytest.raises(UnavailableError, match=f"no server answers at {server.address}"):
            await Client.connect(server.address, tls=stranger, token="x", connect_seconds=0).open()
        with pytest.raises(UnavailableError):
            await Client.connect(server.address, connect_seconds=0).open()
    assert ca.exists()


async def test_a_watch_goes_on_with_the_next_token(tmp_path: Path, ca: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the server no longer takes the one that it began with; a text instead of a function ends it."""
    monkeypatch.setattr(key_set, "RETRY_SECONDS", 0.0)
    old, new = IdentityProvider("old"), IdentityProvider("new")
    (tmp_path / "jwks.json").write_text(jwks(old))
    tokens = [old.token(), new.token()]
    kept = iter(tokens)
    async with running_server(tmp_path, TOML) as server:
        signed_in = Client.connect(server.address, tls=Tls(ca=ca), token=lambda: next(kept))
        async with signed_in as client, Client.connect(server.address, tls=Tls(ca=ca), token=tokens[0]) as other:
            session_id = (await client.send("One")).session_id
            async with client.watch(session_id) as updates, other.watch(session_id) as ending:
                await anext(updates)
                await anext(ending)
                (tmp_path / "jwks.json").write_text(jwks(new))
                async with Client.connect(server.address, tls=Tls(ca=ca), token=tokens[1]) as renewed:
                    await renewed.send("Two", session_id)  # its key is not known, so the keys are read
                async for update in updates:
                    if [m.parts[0].text.text for m in update.conversation.messages if m.parts][-1] == "Two":
                        break
                with pytest.raises(UnauthenticatedError):
                    async for _ in ending:
                        pass
