"""`turnwire-adapters migrate pynchy FILE`: gives the messages of a pynchy file their types in place."""

import itertools
import sqlite3
from argparse import ArgumentParser, Namespace
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from turnwire_adapters.importers.archive import Json
from turnwire_adapters.importers.command import INTERRUPTED, failed, print_error, print_json, print_line
from turnwire_adapters.importers.problems import FileError
from turnwire_adapters.importers.pynchy.importing import add_rules, rules_of
from turnwire_adapters.importers.pynchy.migration import (
    Done,
    Survey,
    Verification,
    data_version,
    migrate,
    survey,
)
from turnwire_adapters.importers.sqlite_file import check_pages, opened

NAMED_ROWS = 20
"""Rows that were left out and are named; the others are counted."""


def add_arguments(parser: ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("file", type=Path, metavar="FILE", help="the SQLite file of pynchy")
    parser.add_argument("--dry-run", action="store_true", help="count, and write nothing")
    parser.add_argument("--verify", action="store_true", help="compare the file afterwards with what it was")
    parser.add_argument(
        "--backup", type=Path, metavar="PATH", help="where to copy the file before; a new name beside it"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_rules(parser)


def run(given: Namespace) -> int:
    """Migrates a file and prints what it holds.

    Returns:
        The exit code: 0; 1 when the verification found something; 2 when the file cannot be migrated; 130 when the run
        was interrupted.
    """
    path: Path = given.file
    if given.backup is not None and given.dry_run:
        return failed(path, FileError("--backup has no use with --dry-run"))
    try:
        with opened(path, writable=not given.dry_run) as db:
            version = data_version(db)
            found = survey(db, rules_of(given))
            done, copy = (Done(), None) if given.dry_run else _migrated(db, given, found)
            proof = None
            if given.verify and not given.dry_run:
                after = survey(db, rules_of(given))
                written = data_version(db) != version
                proof = Verification(before=found, after=after, is_written_meanwhile=written, bad=len(done.bad))
    except FileError as error:
        return failed(path, error)
    except KeyboardInterrupt:
        print_error(f"interrupted: {path} is whole, and the same command goes on with it")
        return INTERRUPTED
    if given.json:
        print_json(_as_json(given, found, done, copy, proof))
    else:
        _print(given, found, done, copy, proof)
    return 0 if proof is None or proof.is_right else 1


def _migrated(db: sqlite3.Connection, given: Namespace, found: Survey) -> tuple[Done, Path | None]:
    if not found.to_change and found.shape.is_complete:
        return Done(), None
    copy = given.backup or _free_name(given.file)
    _back_up(db, copy)
    return migrate(db, rules_of(given), skip_bad=given.skip_bad), copy


def _back_up(db: sqlite3.Connection, target: Path) -> None:
    """Copies a file at one moment and checks the copy, which has its name once it is whole.

    Raises:
        FileError: there is a file of that name, or the copy cannot be written.
    """
    if target.exists():
        raise FileError(f"{target} exists already; name another file for the copy")
    partial = target.with_name(f".{target.name}.partial")
    try:
        partial.unlink(missing_ok=True)
        partial.touch(0o600, exist_ok=False)
        with closing(sqlite3.connect(partial)) as copy:
            db.backup(copy)
            copy.execute("PRAGMA journal_mode=DELETE")  # one file, whatever the original is
            check_pages(copy)
        partial.replace(target)
    except (OSError, sqlite3.Error) as error:
        raise FileError(f"cannot write the copy {target}: {error}") from error
    finally:
        partial.unlink(missing_ok=True)


def _free_name(path: Path) -> Path:
    name = f"{path.name}.before-migration-{datetime.now(UTC):%Y%m%dT%H%M%S}"
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    return next(path.with_name(name) for name in names if not path.with_name(name).exists())


def _as_json(given: Namespace, found: Survey, done: Done, copy: Path | None, proof: Verification | None) -> Json:
    verification = None
    if proof is not None:
        verification = {
            "right": proof.is_right,
            "written_meanwhile": proof.is_written_meanwhile,
            "complete": proof.after.shape.is_complete,
            "before": {"rows": proof.before.rows, "digest": proof.before.digest},
            "after": {"rows": proof.after.rows, "digest": proof.after.digest},
            "types_as_foreseen": proof.before.typed_digest == proof.after.typed_digest,
            "open_rows": proof.after.to_change,
        }
    return {
        "file": str(given.file),
        "dry_run": given.dry_run,
        "messages": found.rows,
        "types": found.types,
        "legacy_kinds": found.legacy_kinds,
        "to_change": found.to_change,
        "changed": done.changed,
        "left_out": list(done.bad.values()),
        "backup": None if copy is None else str(copy),
        "verification": verification,
    }


def _print(given: Namespace, found: Survey, done: Done, copy: Path | None, proof: Verification | None) -> None:
    kinds = ((f"no conversation: {kind}", count) for kind, count in found.legacy_kinds.items())
    for name, count in (*found.types.items(), *kinds):
        print_line(f"{name:<30} {count:>9}")
    if given.dry_run:
        print_line(f"{given.file}: {found.rows} messages, {found.to_change} would change; nothing was written")
        return
    print_line(f"{given.file}: {found.rows} messages, {done.changed} changed")
    if copy is not None:
        print_line(f"The file as it was: {copy}")
    for text in list(done.bad.values())[:NAMED_ROWS]:
        print_line(f"left out: {text}")
    if len(done.bad) > NAMED_ROWS:
        print_line(f"and {len(done.bad) - NAMED_ROWS} more; --json names them")
    if proof is not None:
        print_line(_verdict(proof))


def _verdict(proof: Verification) -> str:
    if proof.is_written_meanwhile:
        return "another program wrote meanwhile: run this again with --verify for a comparison of all rows"
    if proof.is_right:
        return f"verified: {proof.after.rows} rows as they were, each of the type that its program or the rules give it"
    if not proof.is_same:
        return "the old columns are not as they were"
    return f"{proof.after.to_change} rows do not have the type that they are to have"
