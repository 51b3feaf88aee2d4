"""TLS of the web listener: what a handshake agrees on, and files that change."""

import os
import ssl
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.support.servers.authority import Authority, Pair
from turnwire.api.web.certificates import WebCertificates

AUTHORITY = Authority("Turnwire tests")


def _certificates(folder: Path, *, pair: Pair | None = None) -> WebCertificates:
    return WebCertificates(*(pair or AUTHORITY.issue("", "localhost")).write(folder, "web"))


def _client(*protocols: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=AUTHORITY.pem.decode())
    if protocols:
        context.set_alpn_protocols(list(protocols))
    return context


def _handshake(server_context: ssl.SSLContext, client_context: ssl.SSLContext) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Returns both ends of a connection; raises ssl.SSLError when they do not agree."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_hostname="localhost")
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    left = {client, server}
    while left:
        for end in (client, server):
            try:
                end.do_handshake()
                left.discard(end)
            except ssl.SSLWantReadError:
                pass
    with pytest.raises(ssl.SSLWantReadError):
        client.read()  # what TLS 1.3 tells behind the handshake: tickets, or that a certificate is missing
    return client, server


def test_old_versions_of_tls_are_refused(tmp_path: Path) -> None:
    """TLS 1.2 is the oldest."""
    context = _certificates(tmp_path).context()
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    client = _client()
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    assert _handshake(context, client)[0].version() == "TLSv1.2"


def test_new_files_are_taken_at_the_next_handshake(tmp_path: Path) -> None:
    """Files that do not work are told once, and those of before stay until they do."""
    context = _certificates(tmp_path).context()
    first = _shown(context)
    assert _shown(context) == first
    with capture_logs() as lines:
        AUTHORITY.issue("", "localhost").write(tmp_path, "web")
        second = _shown(context)
        assert second != first
        assert _shown(context) == second
        (tmp_path / "web.pem").write_bytes(b"nonsense")
        assert [_shown(context), _shown(context)] == [second, second]
        (tmp_path / "web.pem").unlink()
        os.mkfifo(tmp_path / "web.pem")
        assert [_shown(context), _shown(context)] == [second, second]
        (tmp_path / "web.pem").unlink()
        AUTHORITY.issue("", "localhost").write(tmp_path, "web")
        third = _shown(context)
        assert third not in (first, second)
        (tmp_path / "web.pem").unlink()
        os.mkfifo(tmp_path / "web.pem")
        assert _shown(context) == third
    assert [line["event"] for line in lines] == [
        "web_certificates_renewed",
        "web_certificates_not_renewed",
        "web_certificates_not_renewed",
        "web_certificates_renewed",
        "web_certificates_not_renewed",
    ]
    assert lines[0]["cert"] == str(tmp_path / "web.pem")
    assert "not a regular file" in lines[2]["problem"]


def _shown(context: ssl.SSLContext) -> bytes | None:
    """Returns the certificate that a client sees."""
    return _handshake(context, _client())[0].getpeercert(binary_form=True)
