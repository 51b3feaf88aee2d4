"""Connections are found by the address of their peer: closed, or asked what has come."""

import select
import socket
import sys

import pytest

from turnwire.api.bounds.connections.sockets import Received, shut_down


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
                    assert shut_down(f"{kind}127.0.0.1:{one.getsockname()[1]}")
                    assert one.recv(1) == b""
                    second.sendall(b"x")
                    assert other.recv(1) == b"x"


@pytest.mark.parametrize(
    "peer", ["unix:", "", "ipv4:127.0.0.1:1", "ipv4:nobody:1", "ipv6:%5B::1%5D:1", "ipv4:127.0.0.1:x", "127.0.0.1:1"]
)
def test_who_is_not_connected_is_not_found(peer: str) -> None:
    """Nothing is closed."""
    assert not shut_down(peer)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells it")
def test_what_a_connection_has_received_is_told() -> None:
    """Also what nobody has read yet; after its end nothing is told of it, nor of another file in its place."""
    received = Received()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with (
            socket.create_connection(listener.getsockname()) as one,
            socket.create_connection(listener.getsockname()) as other,
        ):
            names = [f"ipv4:127.0.0.1:{each.getsockname()[1]}" for each in (one, other)]
            served = [listener.accept()[0] for _ in names]
            one.sendall(b"x" * 3_000)
            select.select(served[:1], [], [])
            assert served[0].recv(1_000, socket.MSG_WAITALL) == b"x" * 1_000
            assert received([*names, "unix:", "ipv4:127.0.0.1:1"]) == {names[0]: 3_000, names[1]: 0}
            other.sendall(b"y")
            assert served[1].recv(1) == b"y"
            assert received(names[1:]) == {names[1]: 1}
        for each in served:
            each.close()
        with socket.create_connection(listener.getsockname()):
            assert received(names) == {}
