"""The text that Prometheus reads, and the numbers that are looked up for it."""

import asyncio
import threading
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from turnwire.telemetry.metrics import exposition
from turnwire.telemetry.metrics.exposition import Exposition
from turnwire.telemetry.metrics.instruments import Instruments
from turnwire.telemetry.readings import Readings

READINGS = Readings(running=3, waiting=2, queued=7, watchers=5)


def _values(text: bytes) -> dict[str, float]:
    families = text_string_to_metric_families(text.decode())
    return {sample.name: sample.value for family in families for sample in family.samples}


async def test_it_shows_what_the_server_has_to_do(tmp_path: Path) -> None:
    """And the sizes of its files, wherever a link leads."""
    (tmp_path / "real.db").write_bytes(b"x" * 100)
    (tmp_path / "real.db-wal").write_bytes(b"x" * 50)
    (tmp_path / "link.db").symlink_to(tmp_path / "real.db")
    shown = Exposition(Instruments(), lambda: READINGS, asyncio.get_running_loop(), tmp_path / "link.db")
    values = _values(await shown.text())
    names = ("turns_running", "turns_waiting", "messages_queued", "watchers", "storage_database_bytes")
    assert [values[f"turnwire_{name}"] for name in (*names, "storage_wal_bytes")] == [3, 2, 7, 5, 100, 50]
    assert values["process_resident_memory_bytes"] > 0
    assert not [name for name in values if name.endswith("_created")]


async def test_a_held_loop_does_not_hold_the_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other numbers are as they are; those of the loop stay as they were seen last."""
    monkeypatch.setattr(exposition, "READ_SECONDS", 0.01)
    shown = Exposition(Instruments(), lambda: READINGS, asyncio.get_running_loop(), tmp_path / "t.db")
    texts: list[bytes] = []
    thread = threading.Thread(target=lambda: texts.append(asyncio.run(shown.text())))
    thread.start()
    thread.join()  # on the loop, which can answer nothing meanwhile
    assert _values(texts[0])["turnwire_turns_running"] == 0
    assert _values(texts[0])["turnwire_storage_database_bytes"] == 0


async def test_a_loop_that_has_ended_does_not_either(tmp_path: Path) -> None:
    """The metrics' server is closed after it."""
    ended = asyncio.new_event_loop()
    ended.close()
    shown = Exposition(Instruments(), lambda: READINGS, ended, tmp_path / "t.db")
    assert _values(await shown.text())["turnwire_build_info"] == 1


async def test_who_asks_at_once_gets_one_text(tmp_path: Path) -> None:
    """It is written once for all of them."""
    asked: list[int] = []

    def read() -> Readings:
        asked.append(1)
        return READINGS

    shown = Exposition(Instruments(), read, asyncio.get_running_loop(), tmp_path / "t.db")
    texts = await asyncio.gather(*(shown.text() for _ in range(20)))
    assert (len(set(texts)), len(asked)) == (1, 1)
