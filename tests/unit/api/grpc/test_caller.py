"""Callers of gRPC."""

import base64
from types import SimpleNamespace
from typing import Any

import pytest

from turnwire.api.grpc.caller import GrpcCaller
from turnwire.ports.identity.authenticator import ClientCertificate


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:10.0.0.1:5000", "10.0.0.1"),
        ("ipv6:%5B2001:db8::1%5D:5000", "2001:db8::1"),
        ("unix:", "unix"),
        ("unix:/its/path:5", "unix"),
        ("unix-abstract:ipv4:10.0.0.1:5", "unix"),
    ],
)
def test_an_address_has_no_port(peer: str, address: str) -> None:
    """And a client of a Unix socket, which may give its end any name, is not taken for another one."""
    context: Any = SimpleNamespace(peer=lambda: peer, invocation_metadata=tuple)
    assert GrpcCaller(context).address() == address


@pytest.mark.parametrize(
    ("length", "size"), [(b"\x0b", 11), (b"\x7f", 127), (b"\x81\x80", 128), (b"\x81\xff", 255), (b"\x82\x01\x00", 256)]
)
def test_a_name_that_contains_nul_is_no_name(length: bytes, size: int) -> None:
    """A certificate has the length of a whole name before it, and may have NUL behind it; gRPC cuts names at NUL."""
    name = b"example.com".rjust(size, b"x")

    def found(encoded: bytes) -> ClientCertificate | None:
        pem = b"-----BEGIN CERTIFICATE-----\n" + base64.encodebytes(encoded) + b"-----END CERTIFICATE-----\n"
        properties = {"x509_subject_alternative_name": [name], "peer_dns": [name], "x509_pem_cert": [pem]}
        context: Any = SimpleNamespace(auth_context=lambda: properties, invocation_metadata=tuple)
        return GrpcCaller(context).certificate()

    whole = ClientCertificate(common_name="", alternative_name=f"DNS:{name.decode()}")
    assert found(b"\x82" + length + name + b"\0\x05") == found(b"\x82" + length + name + b"0") == whole
    cut_by_grpc = b"\x82\x05" + name + b"\0.other"
    assert found(cut_by_grpc) == ClientCertificate(common_name="", alternative_name="")
