"""Calls at the gRPC listener that would fill the memory: each has a bound, and costs others nothing."""

import asyncio
import contextlib
import hashlib
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2 as details
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_status import rpc_status
from structlog.testing import capture_logs

from bench.attacks.wire import END_HEADERS, HEADERS, RST_STREAM, Wire, call, data_frames, frame, message, wire
from opencode.file.file_pb2 import DownloadFileRequest
from opencode.message.content_pb2 import MESSAGE_TYPE_USER
from opencode.message.message_pb2 import AppendMessageRequest, FilePart, GetMessageRequest, MessagePart, TextPart
from tests.support.clients.conversation import FOREVER, ask, messages_of, new_session, streamed, words_of
from tests.support.servers.running import Client, connect, running_server
from turnwire.api.admission import overload, reads, sending
from turnwire.api.admission.fair_queue import PendingCalls
from turnwire.api.admission.flow import Client as Caller
from turnwire.app import Server
from turnwire.domain.limits import Limits
from turnwire.telemetry import memory_monitor

DEFAULT_WINDOW_BYTES = 65_535
"""What HTTP/2 lets a client send of a body before it has read the settings of the server."""

SESSIONS = "/opencode.session.SessionService"
HEALTH = "/grpc.health.v1.Health/Check"
REFLECTION = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
TOKENS = '[auth]\nmethods = ["token"]\n'


@contextlib.asynccontextmanager
async def by_hand(server: Server) -> AsyncIterator[Wire]:
    """Opens a connection that speaks HTTP/2 as a test likes."""
    host, _, port = server.address.rpartition(":")
    async with wire((host, int(port))) as one:
        yield one


async def until(true: Callable[[], bool]) -> None:
    """Waits for a state."""
    while not true():
        await asyncio.sleep(0.01)


def being_read(server: Server) -> int:
    """Returns how many requests are being read."""
    return server.overload.reads.count


def info(error: grpc.aio.AioRpcError) -> details.ErrorInfo:
    """Returns the facts of an error."""
    found = details.ErrorInfo()
    status = rpc_status.from_call(error)
    assert status is not None
    next(detail for detail in status.details if detail.Is(found.DESCRIPTOR)).Unpack(found)
    return found


def waits(error: grpc.aio.AioRpcError) -> bool:
    """Returns whether an error says when to try again."""
    status = rpc_status.from_call(error)
    return status is not None and any(detail.Is(details.RetryInfo.DESCRIPTOR) for detail in status.details)


async def test_the_request_of_a_stranger_is_not_received(tmp_path: Path) -> None:
    """The call is refused by its head; of the body comes what HTTP/2 allows before anybody reads."""
    async with running_server(tmp_path, TOKENS) as server, by_hand(server) as one:
        await one.send(frame(HEADERS, END_HEADERS, 1, call(f"{SESSIONS}/CreateSession")))
        sending = asyncio.create_task(one.send_body(1, message(b"x", announced=10_000_000) + bytes(10_000_000)))
        await until(lambda: one.ended > 0)
        sending.cancel()
        assert one.windows.get(1, 0) >= -DEFAULT_WINDOW_BYTES


async def test_slow_requests_do_not_hold_up_others(tmp_path: Path) -> None:
    """However many calls leave the server waiting for their request, a call that has one is answered."""
    async with running_server(tmp_path) as server, by_hand(server) as one, connect(server.address) as client:
        for stream in range(1, 201, 2):
            head = frame(HEADERS, END_HEADERS, stream, call(f"{SESSIONS}/CreateSession"))
            await one.send(head + data_frames(stream, message(b"x", announced=10_000_000)))
        for _ in range(3):
            await client.sessions.ListSessions(timeout=200)
        await until(lambda: being_read(server) == 100)
        assert one.ended == 0
        await client.sessions.ListSessions(timeout=200)


@pytest.mark.slow
async def test_calls_without_their_request_slow_down_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several calls of their network begin in a round of the event loop all the same: behind a proxy all are one."""
    begun_in, now = Counter[int](), [0]
    began = PendingCalls._begin

    def begin(pending: PendingCalls[object], *rest: Any) -> None:
        begun_in[now[0]] += 1
        began(pending, *rest)

    async def count_rounds() -> None:
        while True:
            now[0] += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(PendingCalls, "_begin", begin)
    async with running_server(tmp_path) as server, by_hand(server) as one:
        for stream in range(1, 33, 2):
            await one.send(frame(HEADERS, END_HEADERS, stream, call(f"{SESSIONS}/CreateSession")))
        await until(lambda: being_read(server) == 16)
        counting = asyncio.create_task(count_rounds())
        begun_in.clear()
        heads = [frame(HEADERS, END_HEADERS, stream, call(f"{SESSIONS}/GetSession")) for stream in range(33, 233, 2)]
        await one.send(b"".join(heads))
        await until(lambda: being_read(server) == 116)
        counting.cancel()
        assert max(begun_in.values()) > 1


async def test_health_is_answered_beside_calls_without_their_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While memory is critical, and they have all slots of requests that are read. So it is beside health checks
    without theirs, of which few are read at a time, and each for a moment only.
    """
    request, few = health_pb2.HealthCheckRequest(), 8
    monkeypatch.setattr(memory_monitor, "CHECK_SECONDS", 3600.0)
    async with running_server(tmp_path) as server, by_hand(server) as one, connect(server.address) as client:
        server.overload.note_memory(0, is_critical=True)
        for path, first in ((f"{SESSIONS}/GetSession", 1), (HEALTH, 33)):
            for stream in range(first, first + 32, 2):
                await one.send(frame(HEADERS, END_HEADERS, stream, call(path)))
        reads, checks = server.overload.reads, server.overload.anonymous_reads
        await until(lambda: (reads.count, checks.count) == (few, few // 2))
        check = asyncio.ensure_future(HealthStub(client.channel).Check(request, timeout=200))
        while not check.done():  # as the monitor of the memory does
            server.overload.note_memory(0, is_critical=True)
            assert checks.count <= few // 2
            await asyncio.sleep(0.01)
        assert (await check).status == health_pb2.HealthCheckResponse.SERVING
        assert reads.count == few


@pytest.mark.slow
async def test_large_and_small_requests_come_together(tmp_path: Path) -> None:
    """The last bytes of all large ones come in the same moment; each is received whole, and the small ones too."""
    large, small = [letter * 2**20 for letter in "abcdefgh"], [f"small {number}" for number in range(50)]

    async with running_server(tmp_path) as server, by_hand(server) as one, connect(server.address) as client:
        session_id = await new_session(client)

        def said(text: str) -> AppendMessageRequest:
            part = MessagePart(text=TextPart(text=text))
            return AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_USER, parts=[part])

        requests = {1 + 2 * number: message(said(text).SerializeToString()) for number, text in enumerate(large)}
        head = call("/opencode.message.MessageService/AppendMessage")
        for stream, data in requests.items():
            await one.send(frame(HEADERS, END_HEADERS, stream, head))
            await one.send_body(stream, data[:-1])
        await until(lambda: being_read(server) == len(large))
        calls = [client.messages.AppendMessage(said(text), timeout=200) for text in small]
        for stream, data in requests.items():
            await one.send_body(stream, data[-1:], end=True)
        await asyncio.gather(*calls)
        await until(lambda: one.ended == len(large))
        assert sorted(map(words_of, await messages_of(client, session_id))) == sorted((*large, *small))


async def test_a_request_that_does_not_come_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its call fails after a time, and the connection goes on."""
    monkeypatch.setattr(reads, "RECEIVE_SECONDS", 0.2)
    async with running_server(tmp_path) as server, by_hand(server) as one:
        with capture_logs() as lines:
            await one.send(frame(HEADERS, END_HEADERS, 1, call(f"{SESSIONS}/CreateSession")))
            await until(lambda: one.ended > 0)
        assert [line["code"] for line in lines if line["event"] == "rpc"] == ["RESOURCE_EXHAUSTED"]
        assert not one.is_closed


async def test_a_call_without_a_request_is_refused(tmp_path: Path) -> None:
    """A client that ends its side without a message gets an error, not silence."""
    async with running_server(tmp_path) as server, connect(server.address) as client:

        async def nothing() -> AsyncIterator[bytes]:
            return
            yield b""

        stream = client.channel.stream_unary(f"{SESSIONS}/CreateSession", None, None)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stream(nothing(), timeout=200)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("method", [f"{SESSIONS}/CreateSession", HEALTH])
async def test_a_request_that_is_too_large_is_refused(tmp_path: Path, method: str) -> None:
    """By its announced size, and without a word in the log about an unforeseen error."""
    async with running_server(tmp_path) as server, connect(server.address) as client:
        with capture_logs() as lines, pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.channel.unary_unary(method, None, None)(bytes(2**24 + 1), timeout=200)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        await asyncio.sleep(0)
        assert [line for line in lines if line["log_level"] == "error"] == []


@pytest.mark.parametrize("method", ["Check", "Watch"])
@pytest.mark.parametrize("data", [b"\xff", bytes(1025)])
async def test_bytes_that_are_no_health_check_are_refused(tmp_path: Path, method: str, data: bytes) -> None:
    """With the error that any other method gives."""
    async with running_server(tmp_path) as server, connect(server.address) as client:
        ask = client.channel.unary_stream(f"/grpc.health.v1.Health/{method}", None, None)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            [answer async for answer in ask(data, timeout=200)]
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert info(refused.value).reason == "INVALID_REQUEST"


async def test_further_calls_are_refused(tmp_path: Path) -> None:
    """The limit counts open streams, is named in the error, and health checks are answered all the same."""
    async with running_server(tmp_path, "[limits]\nmax_calls = 3\n") as server, connect(server.address) as client:
        watches = [client.events.WatchEvents(timeout=200) for _ in range(3)]
        for watch in watches:
            await watch.read()
        with capture_logs() as lines:
            for _ in range(20):
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await client.sessions.ListSessions(timeout=200)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        found = info(refused.value)
        assert (found.metadata["limit"], found.metadata["limitValue"]) == ("limits.max_calls", "3")
        assert waits(refused.value)
        assert 0 < len([line for line in lines if line["event"] == "caller_refused"]) < 20
        check = await HealthStub(client.channel).Check(health_pb2.HealthCheckRequest())
        assert check.status == health_pb2.HealthCheckResponse.SERVING
        watches[0].cancel()
        await until(lambda: server.overload.calls == 2)
        await client.sessions.ListSessions(timeout=200)


async def test_health_watches_leave_calls_to_others(tmp_path: Path) -> None:
    """They need no credentials and have no end: all of one network are an eighth of the calls. One that ends makes
    room.
    """
    request = health_pb2.HealthCheckRequest()
    async with running_server(tmp_path, "[limits]\nmax_calls = 16\n") as server, connect(server.address) as client:
        health = HealthStub(client.channel)
        watches = [health.Watch(request, timeout=200) for _ in range(2)]
        for watch in watches:
            await watch.read()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await health.Watch(request, timeout=200).read()
        assert info(refused.value).metadata["limit"] == "limits.max_calls"
        assert waits(refused.value)
        await client.sessions.ListSessions(timeout=200)
        watches[0].cancel()
        await until(lambda: server.overload.calls == 1)
        await health.Watch(request, timeout=200).read()


async def test_a_control_group_makes_all_budgets_smaller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it has less than the configuration says: budgets of a gigabyte fill 400 MB. It is told as the limit."""
    monkeypatch.setattr(memory_monitor, "cgroup_bytes", lambda: 400_000_000)
    with_less = Limits(max_memory_bytes=360_000_000)
    async with running_server(tmp_path) as server, connect(server.address) as client:
        info = await client.server.GetServerInfo()
        assert info.limits["limits.max_memory_bytes"] == with_less.max_memory_bytes
        held = server.overload.sending.reserve(2 * with_less.max_sending_bytes, Caller("", "a"), lambda: None)
        assert server.overload.sending.bytes == with_less.max_sending_bytes
        server.overload.sending.release(held)


async def test_metadata_of_all_calls_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls with little of it are not counted; the others are refused when together they have too much."""
    monkeypatch.setattr(Limits, "max_metadata_bytes", 10_000)
    long = (("x-long", "v" * 4000),)
    async with running_server(tmp_path) as server, connect(server.address) as client:
        watches = [client.events.WatchEvents(metadata=long, timeout=200) for _ in range(2)]
        for watch in watches:
            await watch.read()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.sessions.ListSessions(metadata=long)
        assert info(refused.value).metadata["limit"] == "limits.max_metadata_bytes"
        await client.sessions.ListSessions()


async def test_metadata_of_health_calls_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a watch until it ends. A check has room when others have ended, and needs none with little of it."""
    monkeypatch.setattr(Limits, "max_metadata_bytes", 10_000)
    long = (("x-long", "v" * 4000),)
    async with running_server(tmp_path) as server, connect(server.address) as client:
        health, request = HealthStub(client.channel), health_pb2.HealthCheckRequest()
        for _ in range(5):  # one after the other
            await health.Check(request, metadata=long, timeout=200)
        watches = [health.Watch(request, metadata=long, timeout=200) for _ in range(2)]
        for watch in watches:
            await watch.read()
        for refused in (health.Check(request, metadata=long), health.Watch(request, metadata=long).read()):
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await refused
            assert info(error.value).metadata["limit"] == "limits.max_metadata_bytes"
        await health.Check(request, timeout=200)
        watches[0].cancel()
        await until(lambda: server.overload.calls == 1)
        await health.Check(request, metadata=long, timeout=200)


async def test_new_work_is_refused_while_memory_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Running work goes on and can be watched, read and aborted."""
    monkeypatch.setattr(memory_monitor, "CHECK_SECONDS", 3600.0)
    monkeypatch.setattr(overload, "REFUSE_AFTER_SECONDS", 0.0)
    async with running_server(tmp_path) as server, connect(server.address) as client:
        created = await client.sessions.CreateSession()
        session_id = (await client.messages.SendMessage(ask(FOREVER))).session_id
        server.overload.note_memory(0, is_critical=True)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.sessions.CreateSession()
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert info(refused.value).metadata["limit"] == "limits.max_memory_bytes"
        assert waits(refused.value)
        await client.sessions.GetSession(session_id=created.id)
        watch = client.events.WatchEvents(session_id=created.id)
        await watch.read()
        aborted = await client.messages.AbortSession(session_id=session_id)
        assert aborted.turn_id
        await client.sessions.DeleteSession(session_id=session_id)
        server.overload.note_memory(2**30, is_critical=False)
        await client.sessions.CreateSession()


async def test_a_request_that_comes_slowly_ends_when_memory_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its memory is the first that is given back, and that of few requests when memory has been short for long."""
    monkeypatch.setattr(memory_monitor, "CHECK_SECONDS", 3600.0)
    monkeypatch.setattr(overload, "REFUSE_AFTER_SECONDS", 0.0)
    monkeypatch.setattr(overload, "SPARED_SECONDS", 0.0)
    async with running_server(tmp_path) as server, by_hand(server) as one:
        await one.send(frame(HEADERS, END_HEADERS, 1, call(f"{SESSIONS}/CreateSession")))
        await until(lambda: being_read(server) == 1)
        server.overload.note_memory(0, is_critical=True)
        await until(lambda: one.ended > 0)


async def test_requests_begin_to_be_received_as_memory_has_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until memory is looked at again, no more are let in than fit if each is as large as it may be, whatever they
    bring; those of another network do not wait for them.
    """
    monkeypatch.setattr(memory_monitor, "CHECK_SECONDS", 3600.0)
    room = 20 * overload.READ_COPIES * 2**24
    async with running_server(tmp_path) as server, by_hand(server) as one, connect(server.address) as client:
        server.overload.note_memory(room, is_critical=False)
        await client.sessions.ListSessions()
        streams = range(1, 81, 2)
        for stream in streams:
            await one.send(frame(HEADERS, END_HEADERS, stream, call("/opencode.message.MessageService/AppendMessage")))
            await one.send(data_frames(stream, message(b"x", announced=2**23)))
        await until(lambda: server.overload.calls == len(streams))

        await until(lambda: len(one.windows) >= 10)  # by its window, gRPC lets a client go on
        await client.sessions.ListSessions(timeout=200)
        assert len(one.windows) == being_read(server) == 10  # half of what fits


async def test_one_connection_has_a_bound_of_calls(tmp_path: Path) -> None:
    """A client that asks for more than it was told gets them refused, one by one; those that run go on."""
    toml = "[limits]\nmax_streams_per_connection = 10\n"
    async with running_server(tmp_path, toml) as server, by_hand(server) as one:
        await until(lambda: one.max_streams == 10)
        for stream in range(1, 41, 2):
            await one.send(frame(HEADERS, END_HEADERS, stream, call(f"{SESSIONS}/CreateSession")))
        await until(lambda: one.resets == 10)
        await until(lambda: server.overload.calls == 10)


@pytest.mark.slow
@pytest.mark.parametrize("method", [f"{SESSIONS}/GetSession", HEALTH, REFLECTION])
async def test_resets_end_no_other_call(tmp_path: Path, method: str) -> None:
    """A client ends hundreds of calls before their requests come. Its watch, on the same connection, goes on."""
    async with running_server(tmp_path) as server, by_hand(server) as one:
        head = frame(HEADERS, END_HEADERS, 1, call("/opencode.event.EventService/WatchEvents"))
        await one.send(head + data_frames(1, message(b""), end=True))
        await until(lambda: server.overload.calls == 1)
        with capture_logs() as lines:
            for stream in range(3, 1203, 2):
                await one.send(frame(HEADERS, END_HEADERS, stream, call(method)))
                await one.send(frame(RST_STREAM, 0, stream, b"\0\0\0\x08"))
            last = frame(HEADERS, END_HEADERS, 1203, call(f"{SESSIONS}/ListSessions"))
            await one.send(last + data_frames(1203, message(b""), end=True))
            await one.until_ended(1203)
            await until(lambda: server.overload.calls == 1)
        assert not one.is_closed and one.ended == 1
        assert "peer_cut_off" not in [line["event"] for line in lines]
        assert len([line for line in lines if line["event"] == "rpc"]) < 100


async def _append(client: Client, session_id: str, size: int) -> str:
    """Stores a message of so many bytes. Returns its id."""
    part = MessagePart(text=TextPart(text="x" * size))
    append = AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_USER, parts=[part])
    return (await client.messages.AppendMessage(append)).message_id


async def _stored(client: Client, size: int) -> GetMessageRequest:
    """Stores a message of so many bytes in a new session. Returns the request that reads it."""
    session_id = (await client.sessions.CreateSession()).id
    return GetMessageRequest(session_id=session_id, message_id=await _append(client, session_id, size))


async def test_answers_that_nobody_reads_have_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Further large ones are refused, small ones are not; when the client is gone, there is room again."""
    monkeypatch.setattr(Limits, "max_sending_bytes", 1_000_000)
    async with running_server(tmp_path) as server, connect(server.address) as client:
        get = await _stored(client, 600_000)
        async with by_hand(server) as one:  # its windows are 64 KiB, and it never makes them larger
            path = "/opencode.message.MessageService/GetMessage"
            await one.send(frame(HEADERS, END_HEADERS, 1, call(path)))
            await one.send(data_frames(1, message(get.SerializeToString()), end=True))
            await until(lambda: server.overload.sending.bytes >= 600_000)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await client.messages.GetMessage(get)
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert info(refused.value).metadata["limit"] == "limits.max_sending_bytes"
            assert waits(refused.value)
            await client.sessions.GetSession(session_id=get.session_id)
        await until(lambda: server.overload.sending.bytes == 0)
        await client.messages.GetMessage(get)
        await until(lambda: server.overload.sending.bytes == 0)


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


async def test_who_does_not_read_is_cut_off_when_others_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client that does not read is cut off; a watch that waited for the room gets its event."""
    monkeypatch.setattr(sending, "UNREAD_SECONDS", 0.2)
    monkeypatch.setattr(Limits, "max_sending_bytes", 1_000_000)
    async with running_server(tmp_path) as server, connect(server.address) as client:
        get = await _stored(client, 600_000)
        async with by_hand(server) as one:
            path = "/opencode.message.MessageService/GetMessage"
            await one.send(frame(HEADERS, END_HEADERS, 1, call(path)))
            await one.send(data_frames(1, message(get.SerializeToString()), end=True))
            await until(lambda: server.overload.sending.bytes >= 600_000)
            watch = client.events.WatchEvents(session_id=get.session_id)
            await watch.read()
            await _append(client, get.session_id, 600_000)
            while (await watch.read()).ByteSize() < 600_000:
                pass
            await until(lambda: one.is_closed)


async def test_files_that_nobody_reads_have_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file has its place from the first piece to the last; a further download is refused."""
    monkeypatch.setattr(Limits, "max_sending_bytes", 1_000_000)
    async with running_server(tmp_path) as server, connect(server.address) as client:
        session_id = (await client.sessions.CreateSession()).id
        data = bytes(600_000)
        part = MessagePart(file=FilePart(mime="application/octet-stream", data=data))
        append = AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_USER, parts=[part])
        await client.messages.AppendMessage(append)
        wanted = DownloadFileRequest(session_id=session_id, sha256=hashlib.sha256(data).hexdigest())
        async with by_hand(server) as one:
            await one.send(frame(HEADERS, END_HEADERS, 1, call("/opencode.file.FileService/DownloadFile")))
            await one.send(data_frames(1, message(wanted.SerializeToString()), end=True))
            await until(lambda: server.overload.sending.bytes >= 600_000)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                [piece async for piece in client.files.DownloadFile(wanted)]
            assert info(refused.value).metadata["limit"] == "limits.max_sending_bytes"
        await until(lambda: server.overload.sending.bytes == 0)
        assert sum([len(piece.data) async for piece in client.files.DownloadFile(wanted)]) == len(data)


async def test_what_is_kept_of_conversations_goes_when_memory_is_short(tmp_path: Path) -> None:
    """They are read again when they go on. Who may begin nothing would drop nothing either."""
    async with running_server(tmp_path) as server, connect(server.address) as client:
        session_id = await new_session(client)
        [clear] = server.overload.caches
        kept = clear.__self__  # type: ignore[attr-defined]
        for words in ("one", "two"):
            async for _ in streamed(client, ask(words, session_id)):
                pass
            assert kept.size_bytes > 0
            server.overload.drop_caches()
            assert kept.size_bytes == 0
        found = await client.messages.GetMessages(session_id=session_id)
        assert len(found.messages) == 4


@pytest.mark.slow
async def test_web_answers_that_nobody_reads_have_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of gRPC; they have their place until they are written, or their client is cut off for others."""
    monkeypatch.setattr("turnwire.api.web.server.USER_TIMEOUT_MS", 0)  # the system alone would end it later
    monkeypatch.setattr(Limits, "max_sending_bytes", 1_000_000)
    toml = '[web]\nlisten = "127.0.0.1:0"\n'
    async with running_server(tmp_path, toml) as server, connect(server.address) as client:
        get = await _stored(client, 12_000_000)
        body, place = get.SerializeToString(), server.web_address.rpartition("//")[2].strip("/")
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect(_host_and_port(place))
            head = f"host: {place}\r\ncontent-type: application/proto\r\ncontent-length: {len(body)}\r\n\r\n"
            deaf.sendall(f"POST /opencode.message.MessageService/GetMessage HTTP/1.1\r\n{head}".encode() + body)
            await until(lambda: server.overload.sending.bytes >= 1_000_000)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await client.messages.GetMessage(get)
            assert info(refused.value).metadata["limit"] == "limits.max_sending_bytes"
            monkeypatch.setattr(sending, "UNREAD_SECONDS", 0.0)
            with pytest.raises(grpc.aio.AioRpcError):
                await client.messages.GetMessage(get)
            await until(lambda: server.overload.sending.bytes == 0)
