"""The common part of `turnwire-adapters import NAME FILE`: options, a temporary archive, a server and a report."""

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO

from turnwire_adapters.importers.archive import NAMED_PROBLEMS, Json, Record, Summary, write
from turnwire_adapters.importers.problems import FileError, Problem
from turnwire_adapters.importers.sending import Report, send
from turnwire_client import Client, Tls, TurnwireError

SHOWN_PROBLEMS = 20
"""Problems that people are shown; `--json` names more."""

INTERRUPTED = 130
"""The exit code of a command that was interrupted."""

Records = Callable[[], AbstractContextManager[Iterable[Record]]]
"""Opens a source and gives its conversations."""

Documents = Callable[[], AbstractContextManager[Iterable[bytes | Problem]]]
"""Opens a source and gives documents of a format that the server reads, a line each."""

Compare = Callable[[BinaryIO], Json]
"""Compares an archive with its source: `right`, and what it found."""


def add_arguments(parser: ArgumentParser, *, archive: bool = True) -> None:
    """Adds the file, what to do with it, and the options of a connection.

    Args:
        parser: Of a command.
        archive: Whether it can write an archive instead.
    """
    parser.add_argument("file", type=Path, metavar="FILE")
    if archive:
        parser.add_argument(
            "--to", type=Path, metavar="ARCHIVE", help="write an archive of Turnwire, and ask no server"
        )
    parser.add_argument("--dry-run", action="store_true", help="check everything, store and write nothing")
    parser.add_argument(
        "--verify", action="store_true", help="compare afterwards; exit code 1 when something is missing"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--target", default=None, metavar="HOST:PORT", help="the server (TURNWIRE_TARGET; 127.0.0.1:50051)"
    )
    parser.add_argument(
        "--tls", action="store_true", help="encrypt, with the authorities of the system (TURNWIRE_TLS=1)"
    )
    for name, text in (
        ("--ca", "authorities of the server's certificate (PEM); implies TLS (TURNWIRE_CA)"),
        ("--cert", "certificate to show to the server (PEM), with --key (TURNWIRE_CERT)"),
        ("--key", "key of --cert (TURNWIRE_KEY)"),
        ("--token-file", "file with the token to present (TURNWIRE_TOKEN_FILE, or the token in TURNWIRE_TOKEN)"),
    ):
        parser.add_argument(name, type=Path, default=None, metavar="PATH", help=text)
    parser.add_argument("--tenant", default=None, help="tenant to act for, as an admin (TURNWIRE_TENANT)")


def run(given: Namespace, records: Records, compare: Compare | None = None) -> int:
    """Imports a file, or writes an archive of it, and prints what came of it. The file is only read.

    An archive has its name once it is complete and, where that was asked for, compared. Nothing is sent when the
    comparison found a difference.

    Returns:
        The exit code: 0; 1 when something is missing or the server refused; 2 for a file that cannot be read; 130 when
        the run was interrupted.
    """
    try:
        if given.to is not None:
            return _write_archive(given, records, compare)
        return _import(given, records, compare)
    except FileError as error:
        return failed(given.file, error)
    except OSError as error:
        return failed(given.file, FileError(f"cannot write the archive: {error.strerror}"))
    except KeyboardInterrupt:
        print_error("interrupted: a server finishes what it has begun; the same command again brings the rest")
        return INTERRUPTED


def import_as(given: Namespace, documents: Documents, format_: str) -> int:
    """Imports a file in a format that the server reads. As `run`, without an archive.

    Args:
        given: The options.
        documents: Opens the source and gives lines of that format, as bytes, and problems.
        format_: Its name.
    """
    problems = Summary()
    try:
        with tempfile.TemporaryFile() as file:
            with documents() as lines:
                for line in lines:
                    if isinstance(line, bytes):
                        file.write(line)
                    else:
                        problems.count(line)
            report, checked = asyncio.run(_send(given, file, format_))
    except FileError as error:
        return failed(given.file, error)
    except OSError as error:
        return failed(given.file, FileError(f"cannot write a temporary file: {error.strerror}"))
    except TurnwireError as error:
        print_error(str(error))
        return 1
    except KeyboardInterrupt:
        print_error("interrupted: the server finishes what it has begun; the same command again brings the rest")
        return INTERRUPTED
    return _report(given, {"problems": [problem.as_json() for problem in problems.problems]}, problems, report, checked)


def failed(path: Path, error: FileError) -> int:
    """Prints why a file cannot be used, and returns the exit code."""
    print_error(str(error) if str(path) in str(error) else f"{path}: {error}")
    return 2


def print_error(text: str) -> None:
    """Prints a line to the standard error."""
    print(f"turnwire-adapters: {_visible(text)}", file=sys.stderr)


def print_line(text: str) -> None:
    """Prints a line; what a file has in it cannot steer a terminal."""
    print(_visible(text))


def print_json(value: object) -> None:
    """Prints JSON."""
    print(json.dumps(value, ensure_ascii=True, indent=2))


def _write_archive(given: Namespace, records: Records, compare: Compare | None) -> int:
    with _named(None if given.dry_run else given.to) as file:
        summary, checked = _made(given, records, compare, file)
    facts = {"file": str(given.file), "archive": None if given.dry_run else str(given.to), **summary.as_json()}
    if given.json:
        print_json({**facts, "verification": checked})
    else:
        _print_summary(summary)
        print_line(f"{given.to}: nothing was written" if given.dry_run else f"{given.to}: {_held(summary)}")
        _print_checked(checked)
    return 0 if checked is None or checked["right"] else 1


def _import(given: Namespace, records: Records, compare: Compare | None) -> int:
    # The file has no name, so a killed run leaves nothing.
    with tempfile.TemporaryFile() as file:
        summary, checked = _made(given, records, compare, file)
        facts = {"file": str(given.file), "archive": None, **summary.as_json(), "verification": checked}
        if not given.json:
            _print_summary(summary)
            _print_checked(checked)
        if checked is not None and not checked["right"]:
            if given.json:
                print_json({**facts, "import": None})
            return 1
        try:
            report, compared = asyncio.run(_send(given, file, ""))
        except TurnwireError as error:
            print_error(str(error))
            return 1
    return _report(given, facts, None, report, compared)


def _made(
    given: Namespace, records: Records, compare: Compare | None, file: BinaryIO | None
) -> tuple[Summary, Json | None]:
    with records() as found:
        summary = write(found, file)
    if file is None or compare is None or not given.verify:
        return summary, None
    file.flush()
    return summary, compare(file)


async def _send(given: Namespace, file: BinaryIO, format_: str) -> tuple[Report, Report | None]:
    async with _client(given) as client:
        name = os.fsencode(given.file.name).decode(errors="replace")
        report = await send(client, file, name, format_=format_, dry_run=given.dry_run)
        if not given.verify or given.dry_run:
            return report, None
        return report, await send(client, file, name, format_=format_, verify=True)


def _client(given: Namespace) -> Client:
    def path(name: str) -> Path | None:
        said = getattr(given, name) or os.environ.get(f"TURNWIRE_{name.upper()}")
        return Path(said) if said else None

    token, token_file = os.environ.get("TURNWIRE_TOKEN", ""), path("token_file")
    if token_file is not None and (given.token_file is not None or not token):
        try:
            token = token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeError) as error:
            raise FileError(f"cannot read the token in {token_file}: {error}") from None
    ca, cert, key = path("ca"), path("cert"), path("key")
    is_encrypted = given.tls or os.environ.get("TURNWIRE_TLS", "") in ("1", "true")
    try:
        return Client.connect(
            given.target or os.environ.get("TURNWIRE_TARGET") or "127.0.0.1:50051",
            token=token,
            tls=Tls(ca, cert, key) if ca or cert else is_encrypted,
            tenant=given.tenant or os.environ.get("TURNWIRE_TENANT", ""),
        )
    except ValueError as error:
        raise FileError(f"no connection can be made: {error}") from None


def _report(given: Namespace, facts: Json, problems: Summary | None, report: Report, checked: Report | None) -> int:
    if given.json:
        shown = {**report.as_json(), "dry_run": given.dry_run}
        compared = {} if checked is None else {"comparison": checked.as_json()}
        print_json({**facts, "import": {**shown, **compared}})
    else:
        if problems is not None:
            _print_problems(problems)
        for line in (*report.problem_lines(), *report.lines(dry_run=given.dry_run)):
            print_line(line)
        if checked is not None:
            for line in (*checked.problem_lines(), checked.verification_line()):
                print_line(line)
    lacks = report.lacks_something or (checked is not None and checked.lacks_something)
    return 1 if lacks and not given.dry_run else 0


def _print_summary(summary: Summary) -> None:
    for name, count in (*sorted(summary.types.items()), ("hidden", summary.hidden)):
        print_line(f"{name:<12} {count:>9}")
    _print_problems(summary)


def _print_problems(summary: Summary) -> None:
    for problem in summary.problems[:SHOWN_PROBLEMS]:
        print_line(str(problem))
    if summary.problem_count > SHOWN_PROBLEMS:
        more = f"; --json names the first {NAMED_PROBLEMS}" if summary.problem_count > NAMED_PROBLEMS else ""
        print_line(f"and {summary.problem_count - SHOWN_PROBLEMS} problems more{more}")


def _print_checked(checked: Json | None) -> None:
    if checked is None:
        return
    if checked["right"]:
        print_line("verified: all old columns of all rows can be told from the archive")
    else:
        print_line("not all columns of all rows can be told from the archive; the problems say which")


def _held(summary: Summary) -> str:
    return f"{summary.sessions} sessions, {summary.messages} messages"


@contextlib.contextmanager
def _named(target: Path | None) -> Iterator[BinaryIO | None]:
    """Opens a file that has its name once the block has ended well; what a killed run has left is replaced."""
    if target is None:
        yield None
        return
    if target.exists():
        raise FileError(f"{target} exists already; name another file for the archive")
    partial = target.with_name(f".{target.name}.partial")
    try:
        partial.unlink(missing_ok=True)
        partial.touch(0o600, exist_ok=False)
        with partial.open("r+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    except OSError as error:
        raise FileError(f"cannot write {target}: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def _visible(text: str) -> str:
    """Returns one line without what could steer a terminal."""
    return "".join(char if char.isprintable() else "\ufffd" for char in text.replace("\n", " "))
