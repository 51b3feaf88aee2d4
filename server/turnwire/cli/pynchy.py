"""`turnwire migrate pynchy`: adds the types of messages to a file of pynchy."""

import itertools
import sqlite3
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from turnwire.cli.output import Bar, print_error, print_json, print_line, print_table, progress_bar
from turnwire.domain.errors import StorageError
from turnwire.interop.pynchy import verification
from turnwire.interop.pynchy.legacy_file import check_pages, examine, opened
from turnwire.interop.pynchy.migration import Rules, Survey, migrate, survey
from turnwire.interop.pynchy.verification import Verification
from turnwire.ports.clock import utc_now
from turnwire.storage.sqlite.care.backup import back_up

_COLUMNS = ("messages", "count")

_INTERRUPTED = 130


class Wishes(Struct, frozen=True, kw_only=True):
    """What to do with a file."""

    rules: Rules
    """How messages are classified."""
    backup: Path | None = None
    """Where to copy the file before; None for a new name beside it."""
    dry_run: bool = False
    """Whether to write nothing."""
    verify: bool = False
    """Whether to compare the file afterwards with what it was."""


class _Done(Struct, frozen=True, kw_only=True):
    """What a run has found and done."""

    found: Survey
    changed: int = 0
    """Rows."""
    backup: str = ""
    """The copy of the file as it was; "" when nothing was to change."""
    verification: Verification | None = None


def run_migration(path: Path, wishes: Wishes, *, as_json: bool) -> int:
    """Migrates a file of pynchy and prints what it holds.

    Returns:
        The exit code: 0; 1 when the verification found something; 2 when the file cannot be migrated; 130 when the
        run was interrupted.
    """
    try:
        with progress_bar() as bar, opened(path, writable=not wishes.dry_run) as db:
            bar.begin("counting")
            found = survey(db, wishes.rules, bar.show)
            done = _Done(found=found) if wishes.dry_run else _migrated(db, path, wishes, found, bar)
    except StorageError as error:
        print_error(error.message if str(path) in error.message else f"{path}: {error.message}")
        return 2
    except KeyboardInterrupt:
        print_error(f"interrupted: {path} is whole, and the same command goes on with it")
        return _INTERRUPTED
    if as_json:
        print_json(_as_json(path, done, dry_run=wishes.dry_run))
    else:
        _print(path, done, dry_run=wishes.dry_run)
    return 0 if done.verification is None or done.verification.is_right else 1


def _migrated(db: sqlite3.Connection, path: Path, wishes: Wishes, found: Survey, bar: Bar) -> _Done:
    before = None
    if wishes.verify:
        bar.begin("reading")
        before = verification.fingerprint(db, bar.show)
    copy, changed = "", 0
    if found.to_change or not found.shape.is_complete:
        check_pages(db)
        bar.begin("copying")
        target = wishes.backup or _free_name(path, utc_now())
        if target.exists():
            raise StorageError(f"{target} exists already; name another file for the copy", {"path": str(target)})
        copy = back_up(path, target, identify=_identify, advance=bar.show).path
        bar.begin("migrating")
        changed = migrate(db, wishes.rules, bar.show)
    proof = None
    if before is not None:
        bar.begin("verifying")
        proof = verification.verify(db, before, wishes.rules, bar.show)
    return _Done(found=found, changed=changed, backup=copy, verification=proof)


def _identify(db: sqlite3.Connection) -> int:
    """Lets `back_up` copy files of pynchy, which have no schema version."""
    examine(db)
    return 0


def _free_name(path: Path, now: datetime) -> Path:
    name = f"{path.name}.before-migration-{now:%Y%m%dT%H%M%S}"
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    return next(path.with_name(name) for name in names if not path.with_name(name).exists())


def _as_json(path: Path, done: _Done, *, dry_run: bool) -> dict[str, Any]:
    found, checked = done.found, done.verification
    return {
        "file": str(path),
        "dry_run": dry_run,
        "messages": found.rows,
        "types": found.types,
        "legacy_kinds": found.legacy_kinds,
        "to_change": found.to_change,
        "changed": done.changed,
        "backup": done.backup or None,
        "verification": None
        if checked is None
        else {
            "right": checked.is_right,
            "written_meanwhile": checked.is_written_meanwhile,
            **msgspec.to_builtins(checked),
        },
    }


def _print(path: Path, done: _Done, *, dry_run: bool) -> None:
    found = done.found
    rows = [(name, str(count)) for name, count in found.types.items()]
    rows += [(f"no conversation: {kind}", str(count)) for kind, count in found.legacy_kinds.items()]
    print_table(_COLUMNS, rows, _COLUMNS[1:])
    if dry_run:
        print_line(f"{path}: {found.rows} messages, {found.to_change} would change; nothing was written")
        return
    print_line(f"{path}: {found.rows} messages, {done.changed} changed")
    if done.backup:
        print_line(f"The file as it was: {done.backup}")
    if done.verification is not None:
        _print_verification(done.verification)


def _print_verification(found: Verification) -> None:
    if found.is_right and not found.is_written_meanwhile:
        print_line(f"verified: {found.after.rows} rows as they were, each with the type of the rules", "green")
        return
    if found.is_written_meanwhile:
        print_line("another program wrote meanwhile: run this again with --verify for a comparison of all rows")
    elif not found.is_same:
        print_line("the old columns are not as they were", "red")
    if found.open_rows:
        print_line(f"{found.open_rows} rows came meanwhile and have no type yet: run this again")
    if found.wrong_rows:
        names = ", ".join(found.first_wrong)
        print_line(f"{found.wrong_rows} rows do not have the type of the rules (other bot names?): {names}", "red")
