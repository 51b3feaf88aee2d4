"""Who a call of gRPC is from."""

from types import SimpleNamespace
from typing import Any

import pytest

from turnwire.api.grpc.caller import GrpcCaller


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
