"""Encrypted connections and client certificates."""

import asyncio
import ipaddress
import json
import os
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub
from structlog.testing import capture_logs

from opencode.server.server_pb2 import Caller
from tests.support.clients.signed_in import connect_tls
from tests.support.servers.authority import Authority, Pair
from tests.support.servers.encrypted import AUTHORITY, CLIENTS, MTLS, tls
from tests.support.servers.running import connect, running_server
from turnwire.api.grpc.tls import ServerCertificates
from turnwire.app import Server


@pytest.fixture(scope="module")
async def strict_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """A server that identifies callers by their certificates."""
    folder = tmp_path_factory.mktemp("mtls")
    async with running_server(folder, tls(folder, client_ca=True) + MTLS) as server:
        yield server


BY_NAME = MTLS.replace("[auth.mtls]", '[auth.mtls]\nsubject = "first_alternative_name"')


@pytest.fixture(scope="module")
async def by_name(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """A server that identifies callers by the first alternative name."""
    folder = tmp_path_factory.mktemp("by_name")
    async with running_server(folder, tls(folder, client_ca=True) + BY_NAME.replace("ci =", '"DNS:ci" =')) as server:
        yield server


async def caller(address: str, pair: Pair | None) -> Caller:
    """Returns for whom the server takes a client."""
    async with connect_tls(address, AUTHORITY.pem, pair) as client:
        return (await client.server.GetServerInfo()).caller


async def test_a_holder_of_a_certificate_is_known(strict_server: Server) -> None:
    """By its common name; another subject of the same authority gets the defaults."""
    address = strict_server.address
    assert await caller(address, CLIENTS.issue("ci")) == Caller(tenant="acme", subject="ci", role="writer")
    assert await caller(address, CLIENTS.issue("bob")) == Caller(tenant="rest", subject="bob", role="reader")


async def test_a_name_is_not_cut_at_nul(strict_server: Server, tmp_path: Path) -> None:
    """The owner of a certificate for "ci", NUL and ".example.com" is not "ci", by either kind of name."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await caller(strict_server.address, CLIENTS.issue("ci\0.example.com"))
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    by_host = BY_NAME.replace("ci =", '"DNS:ci" =')
    async with running_server(tmp_path, tls(tmp_path, client_ca=True) + by_host) as server:
        assert (await caller(server.address, CLIENTS.issue("x", "ci"))).tenant == "acme"
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await caller(server.address, CLIENTS.issue("x", "ci\0.example.com"))
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


ALICE = x509.DNSName("alice"), x509.RFC822Name("alice"), x509.UniformResourceIdentifier("alice")
IP = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
OTHER = x509.OtherName(x509.ObjectIdentifier("1.2.3.4"), b"\x0c\x05alice")
REGISTERED = x509.RegisteredID(x509.ObjectIdentifier("1.2.3.4"))
DIRECTORY = x509.DirectoryName(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "alice")]))


@pytest.mark.parametrize(
    ("names", "subject"),
    [
        (ALICE[:1], "DNS:alice"),
        (ALICE[1:2], "email:alice"),
        (ALICE[2:], "URI:alice"),
        ((ALICE[2], x509.DNSName("other"), IP), "URI:alice"),
        ((IP, ALICE[0]), "UNAUTHENTICATED"),
        ((OTHER,), "UNAUTHENTICATED"),
        ((REGISTERED, ALICE[0]), "UNAUTHENTICATED"),
        ((DIRECTORY, ALICE[0]), "UNAUTHENTICATED"),
        (ALICE, "UNAUTHENTICATED"),  # of which gRPC does not tell which one is the first
    ],
)
async def test_the_kind_of_a_name_is_a_part_of_the_subject(
    by_name: Server, names: tuple[x509.GeneralName, ...], subject: str
) -> None:
    """Names of other kinds name nobody."""
    pair = CLIENTS.issue_for("alice", *names)
    try:
        found = (await caller(by_name.address, pair)).subject
    except grpc.aio.AioRpcError as refused:
        found = refused.code().name
    assert found == subject


async def test_a_certificate_has_the_rights_of_its_role(strict_server: Server) -> None:
    """A reader lists sessions and makes none; a client without a subject calls only what is open."""
    async with connect_tls(strict_server.address, AUTHORITY.pem, CLIENTS.issue("bob")) as reader:
        await reader.sessions.ListSessions()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await reader.sessions.CreateSession()
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    async with connect_tls(strict_server.address, AUTHORITY.pem, CLIENTS.issue("")) as nameless:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await nameless.sessions.ListSessions()
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("kind", ["another authority", "no certificate", "self-made"])
async def test_strangers_do_not_get_through_the_handshake(strict_server: Server, kind: str) -> None:
    """Not even health answers them; those who belong are served as before."""
    pairs = {
        "another authority": Authority("Clients of the test").issue("ci"),
        "no certificate": None,
        "self-made": AUTHORITY.issue("ci"),
    }
    async with connect_tls(strict_server.address, AUTHORITY.pem, pairs[kind]) as stranger:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await HealthStub(stranger.channel).Check(health_pb2.HealthCheckRequest(), timeout=200)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    assert (await caller(strict_server.address, CLIENTS.issue("ci"))).tenant == "acme"


async def test_plain_text_is_not_answered(strict_server: Server) -> None:
    """A client that does not encrypt fails, and sends its credentials to nobody by this."""
    async with connect(strict_server.address) as client:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.server.GetServerInfo(timeout=200)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


def served(address: str) -> bytes:
    """Returns the certificate that a new connection gets, in PEM."""
    host, _, port = address.rpartition(":")
    return ssl.get_server_certificate((host, int(port))).encode()


async def test_new_certificates_are_served_without_a_restart(tmp_path: Path) -> None:
    """A new connection gets the new one; one that is open goes on."""
    async with running_server(tmp_path, tls(tmp_path)) as server:
        async with connect_tls(server.address, AUTHORITY.pem) as before:
            await before.server.GetServerInfo()
            renewed = AUTHORITY.issue("server")
            renewed.write(tmp_path, "server")
            assert await asyncio.to_thread(served, server.address) == renewed.cert
            await before.server.GetServerInfo()
        async with connect_tls(server.address, AUTHORITY.pem) as after:
            await after.server.GetServerInfo()


async def test_a_broken_renewal_keeps_the_old_certificate(tmp_path: Path) -> None:
    """The log has it once; when the other half of the pair is there too, the pair is served."""
    async with running_server(tmp_path, tls(tmp_path)) as server:
        old, new = await asyncio.to_thread(served, server.address), AUTHORITY.issue("server")
        with capture_logs() as lines:
            for broken in (b"no certificate", new.cert):
                (tmp_path / "server.pem").write_bytes(broken)
                for _ in range(3):
                    assert await asyncio.to_thread(served, server.address) == old
            (tmp_path / "server.key").unlink()
            assert await asyncio.to_thread(served, server.address) == old
            (tmp_path / "server.key").write_bytes(new.key)
            assert await asyncio.to_thread(served, server.address) == new.cert
        events = [line["event"] for line in lines]
        assert events == ["certificates_not_renewed"] * 3 + ["certificates_renewed"]
        assert new.key.decode() not in json.dumps(lines)


async def test_files_that_do_not_work_stop_the_start(tmp_path: Path) -> None:
    """The error names the keys, not what is in the files."""
    section = tls(tmp_path, client_ca=True)
    right = {name: (tmp_path / name).read_bytes() for name in ("server.pem", "server.key", "clients.pem")}
    for name, content in (("server.key", AUTHORITY.issue("server").key), ("server.pem", b""), ("clients.pem", b"?")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(OSError, match=r"^tls\.(cert|key|client_ca): "):
            async with running_server(tmp_path, section):
                pass
        (tmp_path / name).write_bytes(right[name])
    (tmp_path / "server.key").unlink()
    with pytest.raises(OSError, match=r"^tls\.key: .*server\.key: No such file"):
        async with running_server(tmp_path, section):
            pass


@pytest.mark.parametrize("name", ["server.pem", "server.key", "clients.pem"])
async def test_a_pipe_is_no_certificate(name: str, tmp_path: Path) -> None:
    """Nobody may ever write to it: the start ends with an error, and a renewal keeps what is served."""
    section = tls(tmp_path, client_ca=True)
    files = [tmp_path / "server.pem", tmp_path / "server.key", tmp_path / "clients.pem"]
    grpc_side = ServerCertificates(*files)
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    with pytest.raises(OSError, match=rf"^tls\.(cert|key|client_ca): .*{name} is not a regular file"):
        async with running_server(tmp_path, section):
            pass
    with capture_logs() as lines:
        assert grpc_side.renewed() is None
    assert [line["event"] for line in lines] == ["certificates_not_renewed"]
