"""Ids of an archive in a database on the disk, which has no name and goes when it is closed."""

from pathlib import Path

import pytest

from turnwire.storage.sqlite.staging import seen_ids
from turnwire.storage.sqlite.staging.seen_ids import TemporaryIds

DESCRIPTORS = Path("/dev/fd")


def test_ids_that_come_twice_are_told() -> None:
    """Those of before, and those of one call; all others are kept."""
    ids = TemporaryIds()
    assert ids.add(["a", "b"]) is None
    assert ids.add(["c", "d", "c"]) == "c"
    assert ids.add(["b"]) == "b"
    assert ids.add(["e"]) is None
    assert [one for one in "abcdef" if ids.has(one)] == ["a", "b", "c", "d", "e"]
    ids.close()


def test_its_room_on_the_disk_is_given_back_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not when the garbage is collected: an import may have left gigabytes."""
    monkeypatch.setattr(seen_ids, "CACHE_KIBIBYTES", 16)
    before = len(list(DESCRIPTORS.iterdir()))
    ids = TemporaryIds()
    assert ids.add([f"msg_{number:020}" for number in range(5_000)]) is None
    assert len(list(DESCRIPTORS.iterdir())) == before + 1
    assert ids.has("msg_00000000000000000007")
    ids.close()
    assert len(list(DESCRIPTORS.iterdir())) == before
