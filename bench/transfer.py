"""Duration of an import and an export of whole sessions, and their cost in memory and for others."""

import asyncio
import itertools
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO

import grpc

from bench import report
from bench.child import Child, can_read_usage, turnwire
from bench.client import connect
from opencode.file.upload_pb2 import CreateUploadRequest, WriteUploadRequest
from opencode.file.upload_pb2_grpc import UploadServiceStub
from opencode.session.session_pb2 import ForkSessionRequest
from opencode.session.session_pb2_grpc import SessionServiceStub
from opencode.transfer.transfer_pb2 import ExportSessionsRequest, ImportSessionsRequest
from opencode.transfer.transfer_pb2_grpc import TransferServiceStub
from turnwire.domain.archive.records import ArchivedMessage, ArchivedSession, ArchivedTurn, Record, SessionEnd
from turnwire.domain.conversation.messages import Message, MessageStatus, MessageType, ModelRef, ModelRun, Part, Text
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.conversation.turns import Turn, TurnStatus
from turnwire.domain.money import Usage
from turnwire.interop.turnwire_lines.writing import LinesWriter

SMALL, LARGE = 10_000, 100_000
FORKED = 10_000
PIECE_BYTES = 2**20
AT = datetime(2020, 1, 1, tzinfo=UTC)
BETWEEN = timedelta(seconds=20)
WORDS = "A sentence of usual length with a few words more than needed. " * 6
LIMIT_IN_SECONDS, LIMIT_OUT_SECONDS = 30, 10
APPENDS_PAUSE_SECONDS = 0.01


async def measure(folder: Path, quick: bool) -> None:
    """Prints the seconds of an import and an export, peaks of memory, and what a neighbour notices."""
    report.title(
        "transfer",
        f"one session of {LARGE} messages in an archive; import at most {LIMIT_IN_SECONDS} s, export at most"
        f" {LIMIT_OUT_SECONDS} s; ceilings: sqlite3 inserts the same lines in transactions of 200, and reads them",
    )
    figures = list[report.Figure]()
    peaks = dict[int, tuple[int, int]]()
    for messages in (SMALL,) if quick else (SMALL, LARGE):
        place = folder / str(messages)
        place.mkdir()
        archive = place / "archive.jsonl"
        _write(archive, messages)
        ceilings = _inserted(place / "bare.db", archive)
        async with turnwire(place) as server:
            seconds = await _moved(server, archive, messages, ceilings, figures)
            peaks[messages] = seconds
    if len(peaks) == 2 and can_read_usage():
        (small_in, small_out), (large_in, large_out) = peaks[SMALL], peaks[LARGE]
        figures.append(report.Figure("peak after import, against 10,000", large_in / 1e6, small_in / 1e6, "MB", True))
        figures.append(report.Figure("peak after export, against 10,000", large_out / 1e6, small_out / 1e6, "MB", True))
    report.show(figures)


async def _moved(
    server: Child, archive: Path, messages: int, ceilings: tuple[float, float], figures: list[report.Figure]
) -> tuple[int, int]:
    """Imports and exports an archive. Returns peaks of memory.

    A neighbour appends messages beside the small import and beside a fork of its session; the large import is alone.
    """
    async with grpc.aio.insecure_channel(server.address) as channel:
        is_small = messages == FORKED
        alone = await _appends(server.address, 1.0) if is_small else []
        upload_id = await _uploaded(UploadServiceStub(channel), archive)
        transfer = TransferServiceStub(channel)
        importing = asyncio.create_task(_imported(transfer, upload_id))
        beside = await _appends(server.address, importing) if is_small else []
        seconds_in, session_id = await importing
        peak_in = _peak(server)
        started, size = time.perf_counter(), 0
        async for answer in transfer.ExportSessions(ExportSessionsRequest(session_ids=[session_id])):
            size += len(answer.data)
        seconds_out = time.perf_counter() - started
        peak_out = _peak(server)
        name = f"{messages:,} messages"
        figures += [
            report.Figure(f"import, {name}", seconds_in, ceilings[0], "s", True, wanted=LIMIT_IN_SECONDS),
            report.Figure(f"export, {name}", seconds_out, ceilings[1], "s", True, wanted=LIMIT_OUT_SECONDS),
        ]
        if is_small:
            figures.append(_latency(f"append beside the import of {name}, longest", beside, alone, 100))
            figures.append(_latency("  p99", beside, alone, 99))
            request = ForkSessionRequest(session_id=session_id)
            forking = asyncio.create_task(_timed_fork(SessionServiceStub(channel), request))
            beside = await _appends(server.address, forking)
            figures.append(report.Figure(f"fork, {name}", await forking, None, "s"))
            figures.append(_latency(f"append beside the fork of {name}, longest", beside, alone, 100))
    return peak_in, peak_out


async def _timed_fork(sessions: SessionServiceStub, request: ForkSessionRequest) -> float:
    started = time.perf_counter()
    await sessions.ForkSession(request)
    return time.perf_counter() - started


def _latency(name: str, values: list[float], alone: list[float], percent: int) -> report.Figure:
    def of(seconds: list[float]) -> float:
        return (max(seconds) if percent == 100 else report.percentile(sorted(seconds), percent)) * 1000

    return report.Figure(name, of(values), of(alone), "ms", True)


async def _appends(address: str, until: "float | asyncio.Task[object] | asyncio.Task[float]") -> list[float]:
    """Appends messages to a session of their own for some seconds, or until a task is done. Returns the latencies."""
    ends = time.perf_counter() + until if isinstance(until, float) else None
    latencies = list[float]()
    async with connect(address) as client:
        session_id = await client.create_session()
        while time.perf_counter() < ends if ends is not None else not until.done():  # type: ignore[union-attr]
            started = time.perf_counter()
            await client.append(session_id, "hello")
            latencies.append(time.perf_counter() - started)
            await asyncio.sleep(APPENDS_PAUSE_SECONDS)
    return latencies


async def _uploaded(uploads: UploadServiceStub, archive: Path) -> str:
    upload_id = (await uploads.CreateUpload(CreateUploadRequest())).upload.upload_id
    size, offset = archive.stat().st_size, 0
    with archive.open("rb") as file:
        while data := file.read(PIECE_BYTES):
            is_last = offset + len(data) == size
            request = WriteUploadRequest(upload_id=upload_id, offset=offset, data=data, last=is_last)
            await uploads.WriteUpload(request)
            offset += len(data)
    return upload_id


async def _imported(transfer: TransferServiceStub, upload_id: str) -> tuple[float, str]:
    started, session_id = time.perf_counter(), ""
    async for answer in transfer.ImportSessions(ImportSessionsRequest(upload_id=upload_id)):
        for session in answer.sessions:
            session_id = session.session_id
    if not session_id:
        raise RuntimeError("nothing was imported")
    return time.perf_counter() - started, session_id


def _peak(server: Child) -> int:
    """Returns the most memory that the server has held so far."""
    if not can_read_usage():
        return 0
    lines = Path(f"/proc/{server.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def _inserted(path: Path, archive: Path) -> tuple[float, float]:
    """Returns the seconds in which sqlite3 inserts the lines of an archive, and reads them."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE TABLE lines (id INTEGER PRIMARY KEY, body TEXT NOT NULL)")
        started = time.perf_counter()
        with archive.open("rb") as file:
            while rows := [(line.decode(),) for line in _next_lines(file, 200)]:
                db.execute("BEGIN IMMEDIATE")
                db.executemany("INSERT INTO lines (body) VALUES (?)", rows)
                db.execute("COMMIT")
        inserted = time.perf_counter() - started
        started = time.perf_counter()
        for _ in db.execute("SELECT body FROM lines ORDER BY id"):
            pass
        return inserted, time.perf_counter() - started


def _next_lines(file: BinaryIO, count: int) -> list[bytes]:
    return list(itertools.islice(file, count))


def _write(path: Path, messages: int) -> None:
    writer = LinesWriter(include_files=False)
    with path.open("wb") as file:
        for record in _records(messages):
            file.write(writer.write(record))
        file.write(writer.end())


def _records(messages: int) -> Iterator[Record]:
    session_id = _id("ses", messages)
    yield ArchivedSession(Session(session_id=session_id, created_at=AT, updated_at=AT, title="Bench"))
    for number in range(0, messages, 2):
        yield ArchivedTurn(
            Turn(
                turn_id=_id("trn", number),
                session_id=session_id,
                user_message_id=_id("msg", number),
                status=TurnStatus.ENDED,
                created_at=AT,
                ended_at=AT,
                model=ModelRef("offline", "echo"),
                steps=1,
            )
        )
    for number in range(messages):
        is_answer = number % 2 == 1
        yield ArchivedMessage(
            Message(
                message_id=_id("msg", number),
                session_id=session_id,
                type=MessageType.ASSISTANT if is_answer else MessageType.USER,
                status=MessageStatus.COMPLETE,
                created_at=AT + number * BETWEEN,
                updated_at=AT + number * BETWEEN,
                turn_id=_id("trn", number - is_answer),
                answers_message_id=_id("msg", number - 1) if is_answer else "",
                parts=(Part(part_id=_id("prt", number), index=0, content=Text(WORDS)),),
                model_run=ModelRun(provider_id="offline", model_requested="echo") if is_answer else None,
                usage=Usage(input_tokens=10, output_tokens=20) if is_answer else None,
            )
        )
    yield SessionEnd(messages)


def _id(prefix: str, number: int) -> str:
    return f"{prefix}_{number:032x}"
