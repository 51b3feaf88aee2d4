"""Peers that are cut off, and lines about them."""

import asyncio
from collections.abc import Collection

from structlog.testing import capture_logs

from turnwire.api.admission.abuse import CutOffs
from turnwire.ports.telemetry.line_limit import LINES_A_SECOND


async def test_a_connection_that_is_closed_is_logged() -> None:
    """One that the system does not find goes on, and has no line."""
    closed = list[str]()

    def close(connections: Collection[str]) -> list[str]:
        closed.extend(connections)
        return [one for one in connections if one.startswith("ipv4")]

    cut_offs = CutOffs(close)
    with capture_logs() as lines:
        for name in ("ipv4:bad", "web"):
            cut_offs.cut_off(name, "answers that are not read")
        while len(closed) < 2 or not lines:
            await asyncio.sleep(0)
    assert sorted(closed) == ["ipv4:bad", "web"]
    assert lines == [
        {
            "event": "peer_cut_off",
            "log_level": "warning",
            "peer": "ipv4:bad",
            "listener": "grpc",
            "reason": "answers that are not read",
            "cut_off_since_last_line": 0,
        }
    ]


async def test_many_peers_have_few_lines() -> None:
    """The first ones are named. They are closed together, for each time all files of the process are looked at."""
    closed, times = list[str](), list[int]()

    def close(connections: Collection[str]) -> Collection[str]:
        closed.extend(connections)
        times.append(len(connections))
        return connections

    cut_offs = CutOffs(close)
    with capture_logs() as lines:
        for number in range(10 * LINES_A_SECOND):
            cut_offs.cut_off(f"192.0.2.1:{number}", "flood")
        while len(closed) < 10 * LINES_A_SECOND or not lines:  # it is logged two steps of the loop later
            await asyncio.sleep(0)
        for _ in range(3):
            await asyncio.sleep(0)
    assert 0 < len(lines) <= 2 * LINES_A_SECOND
    assert len(times) == 2
