"""Connections are found by the address of their peer: and closed."""

import socket

import pytest

from turnwire.api.admission.sockets import close_connections


@pytest.mark.parametrize(
    ("family", "host", "kind"),
    [
        (socket.AF_INET, "127.0.0.1", "ipv4:"),
        (socket.AF_INET6, "::ffff:127.0.0.1", "ipv4:"),
        (socket.AF_INET, "127.0.0.1", ""),
        (socket.AF_INET6, "::ffff:127.0.0.1", "::ffff:"),
    ],
)
def test_only_the_connection_of_the_peer_is_closed(family: socket.AddressFamily, host: str, kind: str) -> None:
    """Also when a socket of IPv6 serves clients of IPv4, as that of gRPC does; and as the web listener names it."""
    with socket.socket(family) as listener:
        listener.bind((host, 0))
        listener.listen()
        with socket.create_connection(("127.0.0.1", listener.getsockname()[1])) as one:
            served, _ = listener.accept()
            with served, socket.create_connection(("127.0.0.1", listener.getsockname()[1])) as other:
                second, _ = listener.accept()
                with second:
                    name = f"{kind}127.0.0.1:{one.getsockname()[1]}"
                    assert close_connections([name, "127.0.0.1:1"]) == [name]
                    assert one.recv(1) == b""
                    second.sendall(b"x")
                    assert other.recv(1) == b"x"


@pytest.mark.parametrize(
    "peer", ["unix:", "", "ipv4:127.0.0.1:1", "ipv4:nobody:1", "ipv6:%5B::1%5D:1", "ipv4:127.0.0.1:x", "127.0.0.1:1"]
)
def test_who_is_not_connected_is_not_found(peer: str) -> None:
    """Nothing is closed."""
    assert close_connections([peer]) == []
