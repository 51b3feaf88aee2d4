"""opencode.transfer.TransferService."""

import contextlib
import re
from collections.abc import AsyncGenerator

from opencode.transfer import transfer_pb2 as pb
from turnwire.api.wire.requests.checks import Checks
from turnwire.api.wire.requests.fingerprints import fingerprint
from turnwire.core.use_cases.moving.bringing import ImportRequest
from turnwire.core.use_cases.moving.exports import ExportRequest, Exports
from turnwire.core.use_cases.moving.imports import Imports
from turnwire.core.use_cases.moving.progress import ImportOutcome, ImportStatus
from turnwire.domain.principal import Principal

MAX_SESSIONS = 1000
"""Named in one request; all of a tenant need no names."""

MAX_OPTIONS = 16
"""Maximum options of one import."""

OUTCOMES = {
    ImportOutcome.CREATED: pb.IMPORT_OUTCOME_CREATED,
    ImportOutcome.ADDED: pb.IMPORT_OUTCOME_ADDED,
    ImportOutcome.UNCHANGED: pb.IMPORT_OUTCOME_UNCHANGED,
    ImportOutcome.DIFFERS: pb.IMPORT_OUTCOME_DIFFERS,
}

_DIGEST = re.compile(r"([0-9a-f]{64})?")


class TransferService:
    """Method by method as the contract describes them."""

    def __init__(self, exports: Exports, imports: Imports) -> None:
        """Takes the use cases."""
        self._exports = exports
        self._imports = imports

    async def ExportSessions(
        self, principal: Principal, request: pb.ExportSessionsRequest
    ) -> AsyncGenerator[pb.ExportSessionsResponse]:
        """Yields an archive."""
        asked = export_request(request)
        mime = self._exports.mime(asked)
        async with contextlib.aclosing(self._exports.export(principal, asked)) as archive:
            async for data in archive:
                yield pb.ExportSessionsResponse(data=data, mime=mime)
                mime = ""

    async def ImportSessions(
        self, principal: Principal, request: pb.ImportSessionsRequest
    ) -> AsyncGenerator[pb.ImportSessionsResponse]:
        """Imports an upload."""
        async with contextlib.aclosing(self._imports.run(principal, import_request(request))) as statuses:
            async for status in statuses:
                yield import_answer(status)


def import_request(request: pb.ImportSessionsRequest) -> ImportRequest:
    """Returns what to import. Raises InvalidRequest naming every wrong field."""
    checks = Checks()
    checks.required("upload_id", checks.at_most("upload_id", request.upload_id, 128))
    checks.at_most("format", request.format, 64)
    if len(request.options) > MAX_OPTIONS:
        checks.fail("options", f"has more than {MAX_OPTIONS} options", "TOO_MANY", MAX_OPTIONS)
    for name, value in sorted(request.options.items()):
        checks.at_most("options", name, 64)
        checks.at_most(f"options[{name[:64]}]", value, 1024)
    found = ImportRequest(
        upload_id=request.upload_id,
        format=request.format,
        dry_run=request.dry_run,
        verify=request.verify,
        options=dict(request.options),
        request_id=checks.at_most("request_id", request.request_id, 128),
        fingerprint=fingerprint("import_sessions", request),
    )
    checks.done()
    return found


def import_answer(status: ImportStatus) -> pb.ImportSessionsResponse:
    """Returns how far an import is."""
    return pb.ImportSessionsResponse(
        done_bytes=status.done_bytes,
        total_bytes=status.total_bytes,
        sessions=[
            pb.ImportedSession(
                source_id=one.source_id,
                session_id=one.session_id,
                message_count=one.message_count,
                existed=one.existed,
                outcome=OUTCOMES[one.outcome],
                added_message_count=one.added_messages,
                missing_message_count=one.missing_messages,
            )
            for one in status.sessions
        ],
        problems=[
            pb.ImportProblem(
                line=one.line,
                place=one.place,
                reason=one.reason,
                explanation=one.explanation,
                source_id=one.source_id,
            )
            for one in status.problems
        ],
        session_count=status.session_count,
        problem_count=status.problem_count,
        incomplete_session_count=status.incomplete_count,
    )


def export_request(request: pb.ExportSessionsRequest) -> ExportRequest:
    """Returns what to export. Raises InvalidRequest naming every wrong field."""
    checks = Checks()
    if len(request.session_ids) > MAX_SESSIONS:
        checks.fail("session_ids", f"has more than {MAX_SESSIONS} sessions", "TOO_MANY", MAX_SESSIONS)
    elif len(set(request.session_ids)) < len(request.session_ids):
        checks.fail("session_ids", "names a session twice", "DUPLICATE")
    elif "" in request.session_ids:
        checks.fail("session_ids", "has an empty id", "REQUIRED")
    checks.at_most("format", request.format, 64)
    if not _DIGEST.fullmatch(request.prefix_sha256):
        checks.fail("prefix_sha256", "is not a SHA-256 in lower-case hexadecimal")
    checks.done()
    return ExportRequest(
        session_ids=tuple(request.session_ids),
        format=request.format,
        include_files=request.include_files,
        offset=request.offset,
        prefix_sha256=request.prefix_sha256,
    )
