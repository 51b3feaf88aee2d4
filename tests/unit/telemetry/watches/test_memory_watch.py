"""Memory that becomes short, and is enough again."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from turnwire.telemetry.watches import memory_watch
from turnwire.telemetry.watches.memory_watch import MemoryWatch, cgroup_bytes


class Memory:
    """A process whose memory the test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, kept: int = 0) -> None:
        self.resident, self.told, self.trims, self.given_up = 0, list[bool](), 0, 0
        self._kept = kept
        monkeypatch.setattr(memory_watch, "trim", self._trim)
        monkeypatch.setattr(memory_watch, "cgroup_bytes", lambda: None)
        self.watch = MemoryWatch(1000, self._note, self._give_up, lambda: self.resident)

    def _note(self, *, is_short: bool) -> None:
        self.told.append(is_short)

    def _give_up(self) -> None:
        self.given_up += 1

    def _trim(self) -> None:
        self.trims += 1
        self.resident -= self._kept


async def test_it_is_told_once_each_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """With room between the two, so that it does not change with each request."""
    memory = Memory(monkeypatch)
    with capture_logs() as lines:
        for resident in (100, 899, 900, 1500, 850, 800, 799, 850, 899):
            memory.resident = resident
            await memory.watch.check()
    assert memory.told == [True, False]
    assert [line["event"] for line in lines] == ["memory_short", "memory_enough"]
    assert lines[0]["resident_bytes"] == 900 and lines[0]["max_bytes"] == 1000


async def test_what_the_allocator_keeps_is_asked_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once what was ended is free, before callers are refused for long, and not again and again."""
    memory = Memory(monkeypatch, kept=500)
    memory.resident = 950
    await memory.watch.check()
    assert (memory.told, memory.trims) == ([True], 0)
    await memory.watch.check()
    assert (memory.told, memory.trims) == ([True, False], 1)
    memory.resident = 1600
    await memory.watch.check()
    await memory.watch.check()
    assert (memory.told, memory.trims) == ([True, False, True], 1)


async def test_what_is_kept_is_given_up_as_long_as_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs goes on to keep things; and where nothing new may begin, nothing else would drop them."""
    monkeypatch.setattr(memory_watch, "TRIM_SECONDS", 0.0)
    memory = Memory(monkeypatch)
    for resident in (100, 850, 950, 950, 850, 700, 850):
        memory.resident = resident
        await memory.watch.check()
    assert (memory.given_up, memory.told) == (2, [True, False])


async def test_a_system_that_tells_nothing_is_not_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nobody is refused there."""
    watch = MemoryWatch(1000, lambda **_: None, lambda: None, lambda: None)
    watch.start()
    await watch.check()
    await watch.aclose()
    assert not watch.is_short


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
