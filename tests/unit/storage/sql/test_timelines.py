"""Timelines: which moments belong to a file's past, whatever was restored when."""

import random
import sqlite3
from typing import Any

import pytest

from turnwire.ports.store import Moment, Standing
from turnwire.storage.sql import timelines
from turnwire.storage.sql.timelines import Timelines
from turnwire.storage.sqlite.database import SqliteDatabase
from turnwire.storage.sqlite.schema import migrate


def _file() -> SqliteDatabase:
    db = sqlite3.connect(":memory:", isolation_level=None, factory=SqliteDatabase)
    migrate(db)
    return db


def _copy(db: SqliteDatabase) -> SqliteDatabase:
    copy = sqlite3.connect(":memory:", isolation_level=None, factory=SqliteDatabase)
    db.backup(copy)
    return copy


def test_runs_that_are_forgotten_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that has forgotten runs cannot tell them from those of another file."""
    monkeypatch.setattr(timelines, "KEPT_TIMELINES", 3)
    db = _file()
    runs = [Timelines.begin(db, position) for position in range(5)]
    moments = [Moment(run.current, position) for position, run in enumerate(runs)]
    assert [runs[-1].standing(moment) for moment in moments] == [Standing.UNKNOWN] * 2 + [Standing.PAST] * 3
    assert db.execute("SELECT count(*) FROM timelines").fetchone() == (3,)


class FullDisk(SqliteDatabase):
    """A copy of a file that takes no row any more."""

    def __init__(self, db: SqliteDatabase, code: int) -> None:
        super().__init__(":memory:", isolation_level=None)
        db.backup(self)
        self._code = code

    def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
        """Fails to write."""
        if sql.startswith("INSERT"):
            error = sqlite3.OperationalError("disk")
            error.sqlite_errorcode = self._code
            raise error
        return super().execute(sql, *arguments)


def test_a_full_disk_keeps_no_server_from_starting() -> None:
    """Tokens from before are past; those that are given in that run are replaced in the next one."""
    db = _file()
    first = Timelines.begin(db, 0)
    unsaved = Timelines.begin(FullDisk(db, sqlite3.SQLITE_FULL), 5)
    assert unsaved.standing(Moment(first.current, 5)) is Standing.PAST
    assert unsaved.standing(Moment(unsaved.current, 6)) is Standing.PAST
    after = Timelines.begin(db, 6)
    assert after.standing(Moment(first.current, 5)) is Standing.PAST
    assert after.standing(Moment(unsaved.current, 6)) is Standing.REPLACED
    assert Timelines.begin(FullDisk(_file(), sqlite3.SQLITE_FULL), 0).current
    with pytest.raises(sqlite3.OperationalError):
        Timelines.begin(FullDisk(db, sqlite3.SQLITE_IOERR), 6)


@pytest.mark.matrix
@pytest.mark.parametrize("seed", range(20))
def test_a_moment_is_past_if_its_events_are_in_the_file(seed: int) -> None:
    """However often backups are made and restored: compared with the events themselves."""
    rng = random.Random(seed)
    db, events = _file(), list[int]()
    backups: list[tuple[sqlite3.Connection, list[int]]] = []
    given: list[tuple[Moment, list[int]]] = []
    numbers = iter(range(10_000))
    for _ in range(40):
        run = Timelines.begin(db, len(events))
        for moment, seen in given:
            is_past = events[: len(seen)] == seen
            assert run.standing(moment) is (Standing.PAST if is_past else Standing.REPLACED)
        for _ in range(rng.randint(0, 3)):
            events.append(next(numbers))
            given.append((Moment(run.current, len(events)), list(events)))
            if rng.random() < 0.2:
                backups.append((_copy(db), list(events)))
        if backups and rng.random() < 0.4:
            kept, events = rng.choice(backups)
            db, events = _copy(kept), list(events)
