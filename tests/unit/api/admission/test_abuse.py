"""Peers that are cut off, and lines about them."""

import asyncio

import pytest
from structlog.testing import capture_logs

from turnwire.api.admission import abuse
from turnwire.api.admission.abuse import MAX_RESETS, CutOffLog, Resets
from turnwire.ports.telemetry.line_limit import LINES_A_SECOND


def test_many_peers_have_few_lines() -> None:
    """The first ones are named."""
    with capture_logs() as lines:
        log = CutOffLog()
        for number in range(10 * LINES_A_SECOND):
            log.note(f"192.0.2.1:{number}", "web", "flood")
    assert lines[0] == {
        "event": "peer_cut_off",
        "log_level": "warning",
        "peer": "192.0.2.1:0",
        "listener": "web",
        "reason": "flood",
        "cut_off_since_last_line": 0,
    }
    assert len(lines) <= 2 * LINES_A_SECOND


class Connections:
    """What is closed."""

    def __init__(self) -> None:
        self.closed: list[str] = []

    def close(self, connection: str) -> bool:
        """Remembers it; those of gRPC are found."""
        self.closed.append(connection)
        return connection.startswith("ipv4")


async def test_only_more_resets_than_calls_count() -> None:
    """A client that lets its calls run may end some of them."""
    connections = Connections()
    resets = Resets(connections.close)
    told = list[str]()
    resets.when_cut_off.append(told.append)
    for _ in range(10 * MAX_RESETS):
        resets.note("ipv4:busy")
        resets.forgive("ipv4:busy")
    with capture_logs() as lines:
        for _ in range(MAX_RESETS + 1):
            for name in ("ipv4:bad", "web"):
                resets.note(name)
        while len([line for line in lines if line["event"] == "peer_cut_off"]) < 1 or len(connections.closed) < 2:
            await asyncio.sleep(0)
    assert sorted(connections.closed) == ["ipv4:bad", "web"]
    assert [line["peer"] for line in lines] == ["ipv4:bad"]
    assert told == ["ipv4:bad"], "a connection that cannot be closed goes on"


async def test_counts_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections that came and went are forgotten."""
    monkeypatch.setattr(abuse, "_MAX_COUNTED", 10)
    resets = Resets(Connections().close)
    for number in range(100):
        resets.note(f"ipv4:{number}")
    assert len(resets._counts) == 10
    resets.forgive("ipv4:99")
    assert len(resets._counts) == 9
