"""A whole database in memory for the checks of an examination."""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator

from tests.support.oracles.damaged_database import CODEC, fill
from turnwire.cli.operator.event_frames import ProtoFrames
from turnwire.storage.sqlite.care.findings import Finding
from turnwire.storage.sqlite.care.inspection import Inspection

Check = Callable[[Inspection], Iterator[Finding]]


@contextlib.contextmanager
def whole_database() -> Iterator[sqlite3.Connection]:
    """Gives a database without a problem."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        fill(db)
        db.execute("PRAGMA foreign_keys=OFF")
        yield db


def found_by(db: sqlite3.Connection, *checks: Check) -> list[tuple[str, str]]:
    """Returns problem and subject of what the checks find."""
    inspection = Inspection(db, CODEC, ProtoFrames())
    return [(finding.problem.name, finding.subject) for check in checks for finding in check(inspection)]


def repair_by(db: sqlite3.Connection, *checks: Check) -> None:
    """Runs the repairs of what the checks find, twice: a repair may be repeated."""
    inspection = Inspection(db, CODEC, ProtoFrames())
    findings = [finding for check in checks for finding in check(inspection)]
    for finding in (*findings, *findings):
        for statement in finding.repair:
            db.execute(statement.sql, statement.parameters)
