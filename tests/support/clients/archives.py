"""Exports over a real channel, and what is in them."""

import io
from typing import Any

from opencode.transfer.transfer_pb2 import ExportSessionsRequest
from tests.support.servers.running import Client
from turnwire.domain.archive.records import ImportProblem, Record
from turnwire.interop.turnwire_lines.reading import LinesReader

MAX_LINE_BYTES = 2**26


async def export(client: Client, *session_ids: str, include_files: bool = True, **fields: Any) -> bytes:
    """Returns an archive."""
    request = ExportSessionsRequest(session_ids=session_ids, include_files=include_files, **fields)
    answers = [answer async for answer in client.transfer.ExportSessions(request)]
    assert [bool(answer.media_type) for answer in answers] == [True] + [False] * (len(answers) - 1)
    assert all(0 < len(answer.data) <= 65_536 for answer in answers)
    return b"".join(answer.data for answer in answers)


def records_in(archive: bytes) -> list[Record | ImportProblem]:
    """Returns the records of an archive in Turnwire's own format."""
    return list(LinesReader(MAX_LINE_BYTES).read(io.BytesIO(archive), {}))
