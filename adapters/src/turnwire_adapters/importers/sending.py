"""Sends an archive to a running server over the contract: in pieces, then the server stores its sessions.

An import goes on: what the server has already is found by its origin, and gets what came since. So the same command may
be given again after any failure.
"""

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import BinaryIO
from uuid import uuid4

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

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
from turnwire_client import Client, TurnwireError, UnavailableError

PIECE_BYTES = 2**20
"""Bytes of the archive in one call. No more of it is in memory, whatever its size."""

MAX_ATTEMPTS = 5
PAUSE_SECONDS = 1.0
"""Between attempts while no server answers: a restart takes about that long."""

SILENCE_SECONDS = 300.0
"""Without a word about an import, after which its connection counts as lost."""

_LEFT_OUT = frozenset({"QUOTA_EXCEEDED", "NOT_STORED"})


@dataclass(kw_only=True)
class Report:
    """Server's results of an import or a comparison."""

    sessions: list[ImportedSession] = field(default_factory=list)
    problems: list[ImportProblem] = field(default_factory=list)
    session_count: int = 0
    problem_count: int = 0
    incomplete_count: int = 0
    """Sessions that are not on the server as the archive has them."""

    @property
    def lacks_something(self) -> bool:
        """Whether the server has not all that the archive has."""
        return self.incomplete_count > 0 or any(problem.reason in _LEFT_OUT for problem in self.problems)

    def as_json(self) -> dict[str, object]:
        """Returns it for programs, with the names of the contract."""
        return {
            "session_count": self.session_count,
            "problem_count": self.problem_count,
            "incomplete_session_count": self.incomplete_count,
            "sessions": [_shown(session) for session in self.sessions],
            "problems": [_shown(problem) for problem in self.problems],
        }

    def lines(self, *, dry_run: bool) -> list[str]:
        """Returns it for people."""
        existed = sum(session.existed for session in self.sessions)
        done = "would be imported" if dry_run else "imported"
        there = f"{existed} {'was' if existed == 1 else 'were'} there already"
        lines = [f"{_sessions(self.session_count - existed)} {done}, {there}"]
        if grown := [session for session in self.sessions if session.outcome == IMPORT_OUTCOME_ADDED]:
            got = "would get" if dry_run else "got"
            lines.append(f"{len(grown)} of them {got} {sum(one.added_message_count for one in grown)} new messages")
        if other := sum(session.outcome == IMPORT_OUTCOME_DIFFERS for session in self.sessions):
            verb, them = ("differs", "it") if other == 1 else ("differ", "them")
            lines.append(
                f"{other} of them {verb}, continued or changed since the import: nothing was stored for {them}"
            )
        return lines

    def problem_lines(self) -> list[str]:
        """Returns the problems for people."""
        lines = []
        for problem in self.problems:
            line = f"line {problem.line}" if problem.line else ""
            words = filter(None, [problem.reason, line, problem.source_id, problem.place])
            lines.append(f"{' '.join(words)}: {problem.explanation}")
        if self.problem_count > len(self.problems):
            lines.append(f"and {self.problem_count - len(self.problems)} more problems")
        return lines

    def verification_line(self) -> str:
        """Returns what a comparison found, for people."""
        if self.incomplete_count:
            return f"the server lacks something of {self.incomplete_count} of {_sessions(self.session_count)}"
        return f"verified: the server has all messages of {_sessions(self.session_count)}"


async def send(
    client: Client, archive: BinaryIO, name: str, *, format_: str = "", dry_run: bool = False, verify: bool = False
) -> Report:
    """Imports an archive into a server.

    Args:
        client: An open client.
        archive: From its beginning.
        name: Of the file that it was made of, for people.
        format_: Of the archive; "" is Turnwire's own.
        dry_run: Whether the server only checks.
        verify: Whether it compares what it has, and stores nothing.

    Raises:
        TurnwireError: the server refuses it, or does not answer for a while. The server finishes what it has begun.
    """
    uploads = client.stub(UploadServiceStub)
    created = await client.call(uploads.CreateUpload, CreateUploadRequest(filename=name, request_id=uuid4().hex))
    upload_id = created.upload.upload_id
    try:
        await _upload(client, upload_id, archive)
        request = ImportSessionsRequest(
            upload_id=upload_id,
            format=format_,
            dry_run=dry_run or verify,  # an older server knows only this
            verify=verify,
            request_id=uuid4().hex,
        )
        return await _import(client, request)
    finally:
        # an import that brought everything has removed it; one that goes on holds a copy
        with contextlib.suppress(TurnwireError):
            await client.call(uploads.DeleteUpload, DeleteUploadRequest(upload_id=upload_id), retry_seconds=0)


async def _upload(client: Client, upload_id: str, archive: BinaryIO) -> None:
    """Sends the file piece by piece. A piece may be sent again: the server compares what it has."""
    uploads = client.stub(UploadServiceStub)
    archive.seek(0)
    offset, piece = 0, archive.read(PIECE_BYTES)
    while True:
        following = archive.read(PIECE_BYTES) if piece else b""
        request = WriteUploadRequest(upload_id=upload_id, offset=offset, data=piece, last=not following)
        for attempt in range(MAX_ATTEMPTS):
            try:
                await client.call(uploads.WriteUpload, request)
                break
            except UnavailableError:
                if attempt == MAX_ATTEMPTS - 1:
                    raise
                await asyncio.sleep(PAUSE_SECONDS)
        offset += len(piece)
        if not following:
            return
        piece = following


async def _import(client: Client, request: ImportSessionsRequest) -> Report:
    """Lets the server import, and listens. The same request joins the import again when the connection was lost."""
    transfer = client.stub(TransferServiceStub)
    for attempt in range(MAX_ATTEMPTS):
        report = Report()
        try:
            async for answer in client.stream(transfer.ImportSessions, request, silence_seconds=SILENCE_SECONDS):
                report.sessions += answer.sessions
                report.problems += answer.problems
                report.session_count, report.problem_count = answer.session_count, answer.problem_count
                report.incomplete_count = answer.incomplete_session_count
        except UnavailableError:
            if attempt == MAX_ATTEMPTS - 1:
                raise
            await asyncio.sleep(PAUSE_SECONDS)
        else:
            return report
    raise AssertionError("the last attempt returns or raises")


def _shown(message: Message) -> dict[str, object]:
    return MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)


def _sessions(count: int) -> str:
    return f"{count} {'session' if count == 1 else 'sessions'}"
