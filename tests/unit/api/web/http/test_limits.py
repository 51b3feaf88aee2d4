"""Bounds of connections."""

import asyncio
import resource
from typing import cast

import pytest

from turnwire.api.web.http.limits import Connection, Connections


class Wire:
    """A transport without a socket."""

    def get_extra_info(self, _name: str) -> None:
        """Knows nothing."""


@pytest.mark.parametrize(("wanted", "files", "found"), [(10, 1024, 10), (10_000, 1024, 512), (10, 1, 1)])
def test_files_are_left_for_others(monkeypatch: pytest.MonkeyPatch, wanted: int, files: int, found: int) -> None:
    """A flood of connections must not keep the database from opening a file."""
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (files, files))
    connections, transport = Connections(wanted), cast(asyncio.Transport, Wire())
    taken = [connections.add(cast(Connection, object()), transport) for _ in range(found + 1)]
    assert taken == [True] * found + [False]
