"""`turnwire import`: sends an archive to a running server in pieces, and lets the server store its sessions."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, TypeVar
from uuid import uuid4

import grpc
from google.protobuf.json_format import MessageToDict
from msgspec import Struct

from opencode.file.upload_pb2 import CreateUploadRequest, DeleteUploadRequest, WriteUploadRequest
from opencode.file.upload_pb2_grpc import UploadServiceStub
from opencode.transfer.transfer_pb2 import (
    IMPORT_OUTCOME_ADDED,
    IMPORT_OUTCOME_DIFFERS,
    ImportedSession,
    ImportProblem,
    ImportSessionsRequest,
)
from opencode.transfer.transfer_pb2_grpc import TransferServiceStub
from turnwire.cli.connection import ConnectionProblem, Endpoint, describe
from turnwire.cli.output import Bar, print_error, print_json, print_line, progress_bar
from turnwire.cli.visible_text import one_line
from turnwire.domain.text import join_surrogates

T = TypeVar("T")

PIECE_BYTES = 2**20
"""Bytes sent in one call; no more of the archive is in memory, whatever its size."""

TIMEOUT_SECONDS = 60.0
"""Timeout of one call that writes a piece."""

MAX_ATTEMPTS = 5
PAUSE_SECONDS = 1.0
"""Between attempts while no server answers: a restart takes about that long."""

_INTERRUPTED = 130
_LEFT_OUT = frozenset({"QUOTA_EXCEEDED", "NOT_STORED"})
_OWN = "turnwire"
"""The format whose ids stay where they are free."""


class ImportOptions(Struct, frozen=True, kw_only=True):
    """The import that was requested, and its options."""

    source: Path | None
    """The archive; None for standard input."""
    format: str = ""
    options: Mapping[str, str] = {}
    dry_run: bool = False
    verify: bool = False
    """Whether to compare the archive with what is on the server, and store nothing."""


class _Report(Struct):
    """The server's report on the import."""

    sessions: list[ImportedSession] = []
    problems: list[ImportProblem] = []
    session_count: int = 0
    problem_count: int = 0
    incomplete_count: int = 0


def run_import(connection: Endpoint, wanted: ImportOptions, *, as_json: bool) -> int:
    """Imports an archive and prints what came of it.

    Args:
        connection: The server.
        wanted: The import, and its options.
        as_json: Whether to print JSON.

    Returns:
        The exit code: 0; 1 when it failed, or the server has not all that the archive has, unless this is a dry run; 2
        for wrong options or a file that cannot be read; 130 when it was interrupted.
    """
    try:
        with _opened(wanted.source) as file, connection.open() as channel, progress_bar() as bar:
            report = _imported(channel, file, wanted, bar)
    except ConnectionProblem as problem:
        print_error(str(problem))
        return 2
    except OSError as error:
        print_error(f"{wanted.source or 'standard input'}: {error.strerror}")
        return 2
    except grpc.RpcError as error:
        print_error(_explained(describe(error), wanted))
        return 1
    except KeyboardInterrupt:
        print_error("interrupted: the server finishes what it has begun; the same command again brings the rest")
        return _INTERRUPTED
    if as_json:
        print_json(_as_json(report, wanted))
    else:
        _print(report, wanted)
    lacks_some = not wanted.dry_run and report.incomplete_count > 0
    return 1 if lacks_some or any(problem.reason in _LEFT_OUT for problem in report.problems) else 0


def _explained(problem: str, wanted: ImportOptions) -> str:
    """Returns the server's words about an archive with the name of the file, which they call by its upload."""
    status, field, what = problem.partition(": upload_id: ")
    if not field:
        return problem
    name = "standard input" if wanted.source is None else str(wanted.source)
    advice = "" if wanted.format else " (--format names another format than Turnwire's own)"
    return one_line(f"{status}: {name}: {what}{advice}")


def _imported(channel: grpc.Channel, file: IO[bytes], wanted: ImportOptions, bar: Bar) -> _Report:
    uploads = UploadServiceStub(channel)
    name = "" if wanted.source is None else join_surrogates(wanted.source.name)  # of bytes that are no UTF-8
    created = uploads.CreateUpload(CreateUploadRequest(filename=name, request_id=uuid4().hex), timeout=TIMEOUT_SECONDS)
    upload_id = created.upload.upload_id
    try:
        _upload(uploads, upload_id, file, bar)
        return _import(TransferServiceStub(channel), upload_id, wanted, bar)
    finally:
        # an import that brought everything has removed it; one that goes on holds a copy
        with contextlib.suppress(grpc.RpcError):
            uploads.DeleteUpload(DeleteUploadRequest(upload_id=upload_id), timeout=TIMEOUT_SECONDS)


def _upload(uploads: UploadServiceStub, upload_id: str, file: IO[bytes], bar: Bar) -> None:
    """Sends the file piece by piece. A piece may be sent again: the server compares what it has."""
    total = _size_of(file)
    bar.begin("uploading", total)
    offset, piece = 0, file.read(PIECE_BYTES)
    while True:
        following = file.read(PIECE_BYTES) if piece else b""
        request = WriteUploadRequest(upload_id=upload_id, offset=offset, data=piece, last=not following)

        def write(request: WriteUploadRequest = request) -> object:
            return uploads.WriteUpload(request, timeout=TIMEOUT_SECONDS)

        _again_while_unavailable(write)
        offset += len(piece)
        if total:
            bar.show(offset, total)
        if not following:
            return
        piece = following


def _import(transfer: TransferServiceStub, upload_id: str, wanted: ImportOptions, bar: Bar) -> _Report:
    """Lets the server import, and listens. The same request joins the import again when the connection was lost."""
    request = ImportSessionsRequest(
        upload_id=upload_id,
        format=wanted.format,
        dry_run=wanted.dry_run or wanted.verify,  # an older server knows only this
        verify=wanted.verify,
        options=wanted.options,
        request_id=uuid4().hex,
    )
    bar.begin("comparing" if wanted.verify else "checking" if wanted.dry_run else "importing")

    def listen() -> _Report:
        report = _Report()
        for answer in transfer.ImportSessions(request):
            report.sessions += answer.sessions
            report.problems += answer.problems
            report.session_count, report.problem_count = answer.session_count, answer.problem_count
            report.incomplete_count = answer.incomplete_session_count
            bar.show(answer.done_bytes, answer.total_bytes or 1)
        if wanted.verify:  # an older server compares nothing
            report.incomplete_count += sum(not session.outcome for session in report.sessions)
        return report

    return _again_while_unavailable(listen)


def _again_while_unavailable(call: Callable[[], T]) -> T:
    for _ in range(MAX_ATTEMPTS):
        try:
            return call()
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
            time.sleep(PAUSE_SECONDS)
    return call()


@contextlib.contextmanager
def _opened(source: Path | None) -> Iterator[IO[bytes]]:
    if source is None:
        yield sys.stdin.buffer
        return
    with source.open("rb") as file:
        yield file


def _size_of(file: IO[bytes]) -> int | None:
    """Returns the size of a file; None for a pipe, whose size is unknown."""
    if not file.seekable():
        return None
    size = file.seek(0, 2)
    file.seek(0)
    return size


def _as_json(report: _Report, wanted: ImportOptions) -> dict[str, object]:
    def shown(message: ImportedSession | ImportProblem) -> dict[str, object]:
        return MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)

    return {
        "file": "-" if wanted.source is None else str(wanted.source),
        "dry_run": wanted.dry_run,
        "session_count": report.session_count,
        "problem_count": report.problem_count,
        "incomplete_session_count": report.incomplete_count,
        "sessions": [shown(session) for session in report.sessions],
        "problems": [shown(problem) for problem in report.problems],
    }


def _print(report: _Report, wanted: ImportOptions) -> None:
    _print_problems(report)
    if wanted.verify:
        _print_verification(report)
        return
    existed = sum(session.existed for session in report.sessions)
    done = "would be imported" if wanted.dry_run else "imported"
    new = report.session_count - existed
    there = f"{existed} {'was' if existed == 1 else 'were'} there already"
    print_line(f"{_sessions(new)} {done}, {there}")
    grown = [session for session in report.sessions if session.outcome == IMPORT_OUTCOME_ADDED]
    if grown:
        got = "would get" if wanted.dry_run else "got"
        print_line(f"{len(grown)} of them {got} {sum(one.added_message_count for one in grown)} new messages")
    if other := sum(session.outcome == IMPORT_OUTCOME_DIFFERS for session in report.sessions):
        verb, them = ("differs", "it") if other == 1 else ("differ", "them")
        print_line(f"{other} of them {verb}, continued or changed since the import: nothing was stored for {them}")
    renamed = sum(
        session.session_id not in {"", session.source_id} for session in report.sessions if not session.existed
    )
    if renamed and wanted.format in {"", _OWN}:
        print_line(f"{renamed} with other ids than in the archive, which are taken here")


def _print_verification(report: _Report) -> None:
    count = report.session_count
    if report.incomplete_count:
        print_line(f"the server lacks something of {report.incomplete_count} of {_sessions(count)}", "red")
    else:
        print_line(f"verified: the server has all messages of {_sessions(count)}", "green")


def _sessions(count: int) -> str:
    return f"{count} {'session' if count == 1 else 'sessions'}"


def _print_problems(report: _Report) -> None:
    for problem in report.problems:
        words = [problem.reason, f"line {problem.line}" if problem.line else "", problem.source_id, problem.place]
        print_line(one_line(f"{' '.join(filter(None, words))}: {problem.explanation}"))
    if report.problem_count > len(report.problems):
        print_line(f"and {report.problem_count - len(report.problems)} more problems")
