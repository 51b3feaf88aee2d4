"""Bounds of connections."""

import asyncio
import resource
import socket
from typing import cast

import pytest

from turnwire.api.web.http.limits import Connection, Connections


class Wire:
    """A transport, with a socket or without."""

    def __init__(self, connection: socket.socket | None = None) -> None:
        self._connection = connection

    def get_extra_info(self, name: str) -> socket.socket | None:
        """Knows nothing but its socket."""
        return self._connection if name == "socket" else None


@pytest.mark.parametrize(("wanted", "files", "found"), [(10, 1024, 10), (10_000, 1024, 512), (10, 1, 1)])
def test_files_are_left_for_others(monkeypatch: pytest.MonkeyPatch, wanted: int, files: int, found: int) -> None:
    """A flood of connections must not keep the database from opening a file."""
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (files, files))
    connections, transport = Connections(wanted), cast(asyncio.Transport, Wire())
    taken = [connections.add(cast(Connection, object()), transport) for _ in range(found + 1)]
    assert taken == [True] * found + [False]


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux has all of them")
def test_a_peer_that_is_gone_without_a_word_is_noticed_in_half_a_minute() -> None:
    """When nothing is sent by the tries of the system, and else by what nobody has taken."""
    with socket.socket() as wire:
        Connections(1).add(cast(Connection, object()), cast(asyncio.Transport, Wire(wire)))
        assert wire.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
        idle, pause, tries, unread = (wire.getsockopt(socket.IPPROTO_TCP, name) for name in names)
        assert idle + pause * tries == unread // 1000 == 30
