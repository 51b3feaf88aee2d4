"""The metrics' server beyond that of prometheus_client: readings, sizes, and a look at the called name."""

import asyncio
import contextlib
import http.client
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from turnwire.telemetry.metrics import server
from turnwire.telemetry.metrics.instruments import Instruments
from turnwire.telemetry.metrics.server import MetricsServer
from turnwire.telemetry.readings import Readings


@contextlib.asynccontextmanager
async def _serving(database: Path = Path("none.db"), *, checks_host: bool = False) -> AsyncIterator[str]:
    metrics = MetricsServer(Instruments(), lambda: Readings(1, 2, 3, 4, 5), database, checks_host=checks_host)
    address = metrics.start("127.0.0.1", 0)
    try:
        yield address
    finally:
        await metrics.aclose()
        await metrics.aclose()


def _get(address: str, host: str | None = "127.0.0.1") -> tuple[int, str]:
    connection = http.client.HTTPConnection(address, timeout=200)
    with contextlib.closing(connection):
        connection.putrequest("GET", "/metrics", skip_host=True)
        if host is not None:
            connection.putheader("Host", host)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


async def test_readings_and_sizes_are_those_of_the_scrape(tmp_path: Path) -> None:
    """And no series tells when another one began."""
    (tmp_path / "t.db").write_bytes(b"12345")
    async with _serving(tmp_path / "t.db") as address:
        status, text = await asyncio.to_thread(_get, address)
    assert status == 200
    for line in ("turns_running 1", "turns_waiting 2", "messages_queued 3", "watchers 4", "calls 5"):
        assert f"turnwire_{line}.0\n" in text
    assert "turnwire_storage_database_bytes 5.0\n" in text and "turnwire_storage_wal_bytes 0.0\n" in text
    assert "_created" not in text


async def test_a_scrape_works_while_the_loop_is_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows the last readings again."""
    monkeypatch.setattr(server, "READ_SECONDS", 0.01)
    found: list[tuple[int, str]] = []
    async with _serving() as address:
        scrape = threading.Thread(target=lambda: found.append(_get(address)))
        scrape.start()
        scrape.join()  # blocks the loop
    assert found[0][0] == 200 and "turnwire_turns_running 0.0\n" in found[0][1]


@pytest.mark.parametrize(
    ("host", "is_answered"),
    [
        ("127.0.0.1:9464", True),
        ("localhost", True),
        ("[::1]:9464", True),
        (None, True),
        ("evil.example:9464", False),
        ("localhost.evil.example", False),
        ("", False),
    ],
)
async def test_a_page_whose_name_resolves_to_this_machine_reads_nothing(host: str | None, is_answered: bool) -> None:
    """Its browser calls by that name. Programs other than browsers may send none."""
    async with _serving(checks_host=True) as address:
        status, text = await asyncio.to_thread(_get, address, host)
        assert (status, "turnwire_calls" in text) == ((200, True) if is_answered else (403, False))
    async with _serving() as address:  # one that other machines can reach has names of its own
        assert (await asyncio.to_thread(_get, address, host))[0] == 200
