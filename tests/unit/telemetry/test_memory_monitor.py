"""Memory that becomes short, and is enough again."""

import asyncio
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from turnwire.telemetry import memory_monitor
from turnwire.telemetry.memory_monitor import MemoryMonitor, cgroup_bytes, memory_limit, resident_bytes, trim


class Memory:
    """A process whose memory the test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, kept: int = 0) -> None:
        self.resident, self.told, self.trims, self.given_up = 0, list[bool](), 0, 0
        self.critical_looks, self.exhausted_looks, self.rooms = 0, 0, list[int]()
        self.is_readable_after_trim = True
        self._kept = kept
        monkeypatch.setattr(memory_monitor, "trim", self._trim)
        self.monitor = MemoryMonitor(1000, self._note, self._give_up, self._read)

    def _read(self) -> int | None:
        return self.resident if self.is_readable_after_trim or not self.trims else None

    def _note(self, room: int, *, is_critical: bool, is_exhausted: bool) -> None:
        self.rooms.append(room)
        self.critical_looks += is_critical
        self.exhausted_looks += is_exhausted
        if is_critical != (self.told[-1] if self.told else False):
            self.told.append(is_critical)

    def _give_up(self) -> None:
        self.given_up += 1

    async def check(self, *resident: int) -> None:
        """Looks once for each number of bytes that it has, and waits for what that has begun."""
        for self.resident in resident:
            await self._check()

    async def again(self) -> None:
        """Looks once more."""
        await self.check(self.resident)

    async def _check(self) -> None:
        self.monitor.check()
        if self.monitor._trimming is not None:
            await self.monitor._trimming

    def _trim(self) -> None:
        self.trims += 1
        self.resident -= self._kept


async def test_it_is_told_once_each_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """With room between the two, so that it does not change with each request."""
    memory = Memory(monkeypatch)
    with capture_logs() as lines:
        await memory.check(100, 699, 700, 1500, 670, 650, 649, 670, 699)
    assert memory.told == [True, False]
    assert (memory.critical_looks, memory.exhausted_looks) == (4, 1)
    assert memory.rooms == [600, 1, 0, -800, 30, 50, 51, 30, 1]
    assert [line["event"] for line in lines] == ["memory_short", "memory_enough"]
    assert lines[0]["resident_bytes"] == 700 and lines[0]["max_bytes"] == 1000


async def test_memory_is_exhausted_shortly_before_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """For as long as it is, whether it has just become critical or not."""
    memory = Memory(monkeypatch)
    for resident, looks in ((949, 0), (950, 1), (2000, 2), (949, 2)):
        await memory.check(resident)
        assert memory.exhausted_looks == looks
    memory = Memory(monkeypatch)
    await memory.check(950)
    assert (memory.told, memory.exhausted_looks) == ([True], 1)


async def test_an_error_of_what_it_calls_ends_no_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is logged: without further looks, nothing would bound the memory any more."""
    monkeypatch.setattr(memory_monitor, "CHECK_SECONDS", 0.0)
    monkeypatch.setattr(memory_monitor, "HIGH_CHECK_SECONDS", 0.0)
    monkeypatch.setattr(memory_monitor, "TRIM_SECONDS", 0.0)
    looks, is_again = 0, asyncio.Event()

    def give_up() -> None:
        nonlocal looks
        looks += 1
        if looks == 3:
            is_again.set()
        raise KeyError("a cache")

    monitor = MemoryMonitor(1000, lambda _, **__: None, give_up, lambda: 650)
    with capture_logs() as lines:
        monitor.start()
        await is_again.wait()
        await monitor.aclose()
    assert {line["event"] for line in lines} == {"memory_not_checked"}


async def test_what_the_allocator_keeps_is_asked_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once what was ended is free, before callers are refused for long, and not again and again."""
    memory = Memory(monkeypatch, kept=500)
    await memory.check(950)
    assert (memory.told, memory.trims) == ([True], 0)
    await memory.again()
    assert (memory.told, memory.trims, memory.resident) == ([True], 1, 450)
    await memory.again()
    assert (memory.told, memory.trims) == ([True, False], 1)
    await memory.check(1600)
    await memory.again()
    assert (memory.told, memory.trims) == ([True, False, True], 1)


async def test_no_look_waits_for_the_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes long on a busy machine, where memory grows meanwhile."""
    monkeypatch.setattr(memory_monitor, "TRIM_SECONDS", 0.0)
    memory, is_done = Memory(monkeypatch), threading.Event()
    monkeypatch.setattr(memory_monitor, "trim", is_done.wait)
    for resident in (650, 690, 1500):
        memory.resident = resident
        memory.monitor.check()
    assert (memory.told, memory.given_up) == ([True], 1)
    is_done.set()
    await memory.monitor.aclose()


async def test_what_is_kept_is_given_up_as_long_as_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Running turns keep more things; and where nothing new may begin, nothing else would drop them."""
    monkeypatch.setattr(memory_monitor, "TRIM_SECONDS", 0.0)
    memory = Memory(monkeypatch)
    await memory.check(100, 550, 950, 950, 850, 590, 550)
    assert (memory.given_up, memory.told) == (2, [True, False])


async def test_what_is_kept_is_given_up_before_anybody_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """From six tenths on, and not again and again."""
    memory = Memory(monkeypatch, kept=100)
    for resident, given_up in ((599, 0), (600, 1), (690, 1)):
        await memory.check(resident)
        assert memory.given_up == memory.trims == given_up
    assert memory.told == []
    monkeypatch.setattr(memory_monitor, "TRIM_SECONDS", 0.0)
    await memory.check(690)
    assert (memory.given_up, memory.resident, memory.told) == (2, 590, [])


def test_a_control_group_may_have_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine tenths of it: the rest is for files in the cache."""
    for group, limit in ((None, 1000), (500, 450), (2000, 1000)):
        monkeypatch.setattr(memory_monitor, "cgroup_bytes", lambda group=group: group)
        assert memory_limit(1000) == limit


async def test_memory_that_cannot_be_read_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when there are no descriptors: it stays short until something else is read."""
    memory = Memory(monkeypatch)
    memory.resident, memory.is_readable_after_trim = 950, False
    for _ in range(3):
        await memory.again()
    assert (memory.told, memory.trims) == ([True], 1)
    memory.is_readable_after_trim, memory.resident = True, 640
    await memory.again()
    assert memory.told == [True, False]


async def test_a_system_that_tells_nothing_has_all_its_memory_left() -> None:
    """At each look; nobody is refused there."""
    rooms = list[int]()
    monitor = MemoryMonitor(1000, lambda room, **_: rooms.append(room), lambda: None, lambda: None)
    monitor.check()
    monitor.check()
    assert (rooms, monitor.is_short) == ([700, 700], False)


def test_the_least_limit_of_all_groups_counts(tmp_path: Path) -> None:
    """A group is bounded by those that it is in; "max" is no limit."""
    proc, root = tmp_path / "cgroup", tmp_path / "sys"
    (root / "system" / "turnwire").mkdir(parents=True)
    proc.write_text("12:cpu:/old\n0::/system/turnwire\n")
    assert cgroup_bytes(proc, root) is None
    (root / "system" / "turnwire" / "memory.max").write_text("max\n")
    (root / "system" / "memory.max").write_text("500\n")
    assert cgroup_bytes(proc, root) == 500
    (root / "system" / "turnwire" / "memory.max").write_text("400\n")
    assert cgroup_bytes(proc, root) == 400
    assert cgroup_bytes(tmp_path / "missing", root) is None


def test_this_process_has_memory() -> None:
    """Where the system reports it; returning what is kept never fails."""
    trim()
    assert (resident_bytes() or 2**20) >= 2**20


def test_a_group_of_version_1_counts(tmp_path: Path) -> None:
    """Below a folder of its own; in a container its place is often missing there, and the folder itself counts."""
    proc, root = tmp_path / "cgroup", tmp_path / "sys"
    (root / "memory" / "turnwire").mkdir(parents=True)
    (root / "memory" / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    (root / "memory" / "turnwire" / "memory.limit_in_bytes").write_text("700\n")
    proc.write_text("4:memory:/turnwire\n3:cpu:/turnwire\n0::/\n")
    assert cgroup_bytes(proc, root) == 700
    proc.write_text("4:memory:/docker/turnwire\n0::/\n")
    assert cgroup_bytes(proc, root) == 9223372036854771712
