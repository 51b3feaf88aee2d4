"""`turnwire migrate pynchy --to` and `--import`: writes the chats of a pynchy file as an archive, or sends it on."""

import contextlib
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from msgspec import Struct, field

from turnwire.cli.connection import Connection
from turnwire.cli.importing import Wanted, run_import
from turnwire.cli.output import Bar, print_error, print_json, print_line, print_table, progress_bar
from turnwire.domain.archive.records import ArchivedMessage, ArchivedSession, ImportProblem, Record
from turnwire.domain.errors import ArchiveInvalid, StorageError
from turnwire.interop.pynchy.conversations import records
from turnwire.interop.pynchy.legacy_file import private_copy
from turnwire.interop.pynchy.migration import BATCH_ROWS, Rules
from turnwire.interop.pynchy.old_values import old_row
from turnwire.interop.pynchy.verification import Fingerprint, RowDigest, fingerprint
from turnwire.interop.turnwire_lines.reading import LinesReader
from turnwire.interop.turnwire_lines.writing import LinesWriter

MAX_LINE_BYTES = 2**31
"""Of an archive that is compared with its file: SQLite has no longer value."""

NAMED_PROBLEMS = 20
"""Problems that are named; the others are counted."""

_COLUMNS = ("messages", "count")

_INTERRUPTED = 130


class ArchiveWishes(Struct, frozen=True, kw_only=True):
    """What to do with a file."""

    rules: Rules
    """How messages are classified."""
    target: Path | None
    """The archive to write; None to count only, or to send it on."""
    verify: bool = False
    """Whether to compare the archive with the file."""


class _Done(Struct, kw_only=True):
    """What an archive holds."""

    sessions: int = 0
    messages: int = 0
    hidden: int = 0
    types: Counter[str] = field(default_factory=Counter)
    problems: int = 0
    first_problems: list[ImportProblem] = []
    before: Fingerprint | None = None
    """Of the file; None when nothing was compared."""
    after: Fingerprint | None = None
    """Of the archive."""

    @property
    def is_right(self) -> bool:
        """Whether all columns of all rows can be told from the archive, as far as they were compared."""
        if self.before is None or self.after is None:
            return True
        return (self.before.rows, self.before.digest) == (self.after.rows, self.after.digest)

    def count(self, record: Record | ImportProblem) -> None:
        """Adds a record."""
        match record:
            case ArchivedSession():
                self.sessions += 1
            case ArchivedMessage(message, hidden):
                self.messages += 1
                self.hidden += hidden
                self.types[str(message.type)] += 1
            case ImportProblem():
                self.problems += 1
                if self.problems <= NAMED_PROBLEMS:
                    self.first_problems.append(record)


def run_archive(path: Path, wishes: ArchiveWishes, *, as_json: bool) -> int:
    """Writes an archive of a file of pynchy and prints what it holds. The file is only read.

    The archive has its name once it is complete and, where that was asked for, compared.

    Returns:
        The exit code: 0; 1 when the comparison found a difference; 2 when the file cannot be read or the archive not
        be written; 130 when the run was interrupted.
    """
    done = _made(path, wishes, _opened(wishes.target))
    if isinstance(done, int):
        return done
    if as_json:
        print_json(_as_json(path, wishes, done))
    else:
        _print(path, wishes, done)
    return 0 if done.is_right else 1


def import_archive(path: Path, wishes: ArchiveWishes, connection: Connection, *, dry_run: bool, as_json: bool) -> int:
    """Sends an archive of a file of pynchy to a running server and prints what came of it. The file is only read.

    Nothing is sent when a comparison that was asked for found a difference. Equal files give equal archives, so what
    is on the server already is found and left as it is.

    Args:
        path: The file.
        wishes: What to do with it; no target.
        connection: The server.
        dry_run: Whether the server only checks.
        as_json: Whether to print JSON.

    Returns:
        The exit code: that of `run_archive` when there is no archive or it differs, else that of `run_import`.
    """
    try:
        file = tempfile.TemporaryFile()  # noqa: SIM115 - closed below; it has no name, so a killed run leaves nothing
    except OSError as error:
        print_error(f"cannot write a temporary file: {error.strerror}")
        return 2
    with file:
        done = _made(path, wishes, contextlib.nullcontext(file))
        if isinstance(done, int):
            return done
        facts = _as_json(path, wishes, done)
        if not as_json:
            _print(path, wishes, done, is_sent=True)
        elif not done.is_right:
            print_json({**facts, "import": None})
        if not done.is_right:
            return 1
        file.seek(0)
        wanted = Wanted(source=path, dry_run=dry_run, verify_after=wishes.verify and not dry_run)
        return run_import(connection, wanted, as_json=as_json, archive=file, facts=facts)


def _made(path: Path, wishes: ArchiveWishes, opened: contextlib.AbstractContextManager[BinaryIO | None]) -> _Done | int:
    """Writes an archive. Returns what it holds, or the exit code of a failure, which it prints."""
    try:
        with progress_bar() as bar, opened as file:
            return _archived(path, wishes, file, bar)
    except (StorageError, ArchiveInvalid) as error:
        print_error(error.message if str(path) in error.message else f"{path}: {error.message}")
        return 2
    except OSError as error:
        print_error(f"{path}: cannot write the archive: {error.strerror}")
        return 2
    except KeyboardInterrupt:
        print_error("interrupted: there is no archive; run the same command again")
        return _INTERRUPTED


def _archived(path: Path, wishes: ArchiveWishes, file: BinaryIO | None, bar: Bar) -> _Done:
    done = _Done()
    bar.begin("copying")
    with private_copy(path, bar.show) as db:
        if wishes.verify:
            bar.begin("reading")
            done.before = fingerprint(db, bar.show)
        bar.begin("writing")
        writer = LinesWriter(include_files=True)
        for record in records(db, wishes.rules, bar.show):
            done.count(record)
            if file is not None and not isinstance(record, ImportProblem):
                file.write(writer.write(record))
    if file is not None:
        file.write(writer.end())
        file.flush()
        if wishes.verify:
            bar.begin("verifying")
            done.after = _fingerprint_of(file, done.messages, bar)
        os.fsync(file.fileno())
    return done


def _fingerprint_of(file: BinaryIO, rows: int, bar: Bar) -> Fingerprint:
    """Returns what the old columns are by an archive."""
    file.seek(0)
    digest = RowDigest()
    for record in LinesReader(MAX_LINE_BYTES).read(file, {}):
        if isinstance(record, ArchivedSession):
            session = record.session
        elif isinstance(record, ArchivedMessage):
            digest.add(old_row(session, record.message))
            if digest.rows % BATCH_ROWS == 0:
                bar.show(digest.rows, rows)
    return Fingerprint(rows=digest.rows, digest=digest.digest, data_version=0)


@contextlib.contextmanager
def _opened(target: Path | None) -> Iterator[BinaryIO | None]:
    """Opens a file that has its name once the block has ended well; what a killed run has left is replaced."""
    if target is None:
        yield None
        return
    if target.exists():
        raise StorageError(f"{target} exists already; name another file for the archive", {"path": str(target)})
    partial = target.with_name(f".{target.name}.partial")
    try:
        partial.unlink(missing_ok=True)
        partial.touch(0o600, exist_ok=False)
        with partial.open("r+b") as file:
            yield file
        partial.replace(target)
    except OSError as error:
        raise StorageError(f"cannot write {target}: {error.strerror}", {"path": str(target)}) from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def _as_json(path: Path, wishes: ArchiveWishes, done: _Done) -> dict[str, Any]:
    return {
        "file": str(path),
        "archive": str(wishes.target) if wishes.target else None,
        "sessions": done.sessions,
        "messages": done.messages,
        "hidden": done.hidden,
        "types": dict(sorted(done.types.items())),
        "problems": done.problems,
        "verification": None
        if done.before is None or done.after is None
        else {
            "right": done.is_right,
            "before": {"rows": done.before.rows, "digest": done.before.digest},
            "after": {"rows": done.after.rows, "digest": done.after.digest},
        },
    }


def _print(path: Path, wishes: ArchiveWishes, done: _Done, *, is_sent: bool = False) -> None:
    rows = [(name, str(count)) for name, count in sorted(done.types.items())]
    print_table(_COLUMNS, [*rows, ("hidden", str(done.hidden))], _COLUMNS[1:])
    for problem in done.first_problems:
        print_line(f"{problem.source_id} {problem.place}: {problem.explanation}")
    if done.problems > len(done.first_problems):
        print_line(f"and {done.problems - len(done.first_problems)} problems more")
    held = f"{done.sessions} sessions, {done.messages} messages"
    if wishes.target is None and not is_sent:
        print_line(f"{path}: {held}; nothing was written")
        return
    print_line(f"{wishes.target or path}: {held}")
    if done.before is not None:
        if done.is_right:
            print_line(f"verified: all columns of {done.before.rows} rows can be told from the archive", "green")
        else:
            print_line("not all columns of all rows can be told from the archive; the problems say which", "red")
