"""opencode.transfer.TransferService."""

import contextlib
import re
from collections.abc import AsyncGenerator

from opencode.transfer import transfer_pb2 as pb
from turnwire.api.wire.requests.checks import Checks
from turnwire.core.use_cases.moving.exports import ExportRequest, Exports
from turnwire.domain.principal import Principal

MAX_SESSIONS = 1000
"""Named in one request; all of a tenant need no names."""

_DIGEST = re.compile(r"([0-9a-f]{64})?")


class TransferService:
    """Method by method as the contract describes them."""

    def __init__(self, exports: Exports) -> None:
        """Takes the use cases."""
        self._exports = exports

    async def ExportSessions(
        self, principal: Principal, request: pb.ExportSessionsRequest
    ) -> AsyncGenerator[pb.ExportSessionsResponse]:
        """Yields an archive."""
        asked = export_request(request)
        media_type = self._exports.media_type(asked)
        async with contextlib.aclosing(self._exports.export(principal, asked)) as archive:
            async for data in archive:
                yield pb.ExportSessionsResponse(data=data, media_type=media_type)
                media_type = ""


def export_request(request: pb.ExportSessionsRequest) -> ExportRequest:
    """Returns what to export. Raises InvalidRequest naming every wrong field."""
    checks = Checks()
    if len(request.session_ids) > MAX_SESSIONS:
        checks.fail("session_ids", f"names more than {MAX_SESSIONS} sessions", "TOO_MANY")
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
