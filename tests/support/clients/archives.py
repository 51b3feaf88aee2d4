"""Exports and imports over a real channel, and what is in archives."""

import io
from typing import Any

from opencode.transfer.transfer_pb2 import ExportSessionsRequest, ImportSessionsRequest, ImportSessionsResponse
from tests.support.fakes.domain_values import make_file, make_message, make_part
from tests.support.oracles.archives import golden_records, real_id
from tests.support.servers.moving import lines
from tests.support.servers.running import Client
from turnwire.domain.archive.records import ArchivedFile, ArchivedMessage, ImportProblem, Record, SessionEnd
from turnwire.domain.conversation.messages import Text
from turnwire.interop.turnwire_lines.reading import LinesReader

MAX_LINE_BYTES = 2**26


async def export(client: Client, *session_ids: str, include_files: bool = True, **fields: Any) -> bytes:
    """Returns an archive."""
    request = ExportSessionsRequest(session_ids=session_ids, include_files=include_files, **fields)
    answers = [answer async for answer in client.transfer.ExportSessions(request)]
    assert [bool(answer.mime) for answer in answers] == [True] + [False] * (len(answers) - 1)
    assert all(0 < len(answer.data) <= 65_536 for answer in answers)
    return b"".join(answer.data for answer in answers)


def records_in(archive: bytes) -> list[Record | ImportProblem]:
    """Returns the records of an archive in Turnwire's own format."""
    return list(LinesReader(MAX_LINE_BYTES).read(io.BytesIO(archive), {}))


async def upload(client: Client, archive: bytes) -> str:
    """Sends an archive and returns the upload's id."""
    upload_id = (await client.uploads.CreateUpload()).upload.upload_id
    for start in range(0, len(archive), 2**20):
        data = archive[start : start + 2**20]
        is_last = start + len(data) == len(archive)
        await client.uploads.WriteUpload(upload_id=upload_id, offset=start, data=data, last=is_last)
    return upload_id


async def bring(client: Client, archive: bytes, **fields: Any) -> list[ImportSessionsResponse]:
    """Imports an archive and returns all answers."""
    request = ImportSessionsRequest(upload_id=await upload(client, archive), **fields)
    return [answer async for answer in client.transfer.ImportSessions(request)]


async def long_session(client: Client, messages: int) -> str:
    """Returns a session with many messages that say their numbers, and a file in each hundredth."""
    session_id = real_id("ses", f"long {messages}")
    [first, *_] = golden_records(f"long {messages}", ())
    records: list[Record] = [first, ArchivedFile(make_file(b"abc").sha256, b"abc")]
    for number in range(messages):
        contents = [Text(str(number)), *([make_file(b"abc")] if number % 100 == 0 else [])]
        parts = [
            make_part(index, content, part_id=real_id("prt", f"{number} {index}"))
            for index, content in enumerate(contents)
        ]
        message = make_message(real_id("msg", str(number)), *parts, session_id=session_id)
        records.append(ArchivedMessage(message))
    await bring(client, lines([*records, SessionEnd(messages)]))
    return session_id
