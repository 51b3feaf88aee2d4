"""What every call passes, whatever listener it came by."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from google.protobuf.message import Message
from google.rpc import code_pb2
from google.rpc import error_details_pb2 as details
from structlog.testing import capture_logs

from opencode.message.message_pb2 import (
    GetMessageRequest,
    SendMessageRequest,
    SendMessageResponse,
    StreamMessageRequest,
    StreamMessageResponse,
)
from turnwire.api.gate import CallerGone, CallFailed, Gate
from turnwire.api.services.opening import STREAM_OPEN
from turnwire.domain.errors import MessageNotFound
from turnwire.domain.principal import Principal, Role

SOMEBODY = Principal(tenant="acme", subject="eve", role=Role.READER)
REQUEST = GetMessageRequest(session_id="ses_1")


class Caller:
    """Takes the answers of a stream, and goes away after some."""

    def __init__(self, patience: int = 10) -> None:
        self._patience = patience
        self.got: list[Message | bytes | str] = []

    async def open(self) -> None:
        """Remembers it."""
        self.got.append("open")

    async def send(self, answer: Message | bytes) -> None:
        """Takes the answer, or is gone."""
        if len(self.got) >= self._patience:
            raise CallerGone
        self.got.append(answer)


class Service:
    """Answers what it is told to; an exception is raised."""

    def __init__(self, *answers: Message | bytes | Exception) -> None:
        self._answers = answers
        self.principals: list[Principal] = []
        self.closed = False

    async def one(self, principal: Principal, request: object) -> Message | bytes:
        """Returns the first answer."""
        self.principals.append(principal)
        [answer] = self._answers
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def many(self, principal: Principal, request: object) -> AsyncGenerator[Message | bytes]:
        """Yields the answers."""
        self.principals.append(principal)
        try:
            for answer in self._answers:
                if isinstance(answer, Exception):
                    raise answer
                yield answer
        finally:
            self.closed = True


async def test_a_call_is_carried_out_for_the_principal_and_logged() -> None:
    """One line, which names the session: that of the request, else that of the answer."""
    service = Service(SendMessageResponse(session_id="ses_new"))
    with capture_logs() as lines:
        assert await Gate(SOMEBODY).unary("S.One", service.one, object()) == SendMessageResponse(session_id="ses_new")
        await Gate(SOMEBODY).unary("S.One", service.one, REQUEST)
    assert service.principals == [SOMEBODY, SOMEBODY]
    assert [(line["event"], line["method"], line["code"], line["session_id"]) for line in lines] == [
        ("rpc", "S.One", "OK", "ses_new"),
        ("rpc", "S.One", "OK", "ses_1"),
    ]


async def test_the_line_of_a_stream_that_sends_names_the_session() -> None:
    """The message inside the request names it, else the acceptance, which comes first."""
    accepted = StreamMessageResponse(accepted=SendMessageResponse(session_id="ses_new"))
    named = StreamMessageRequest(message=SendMessageRequest(session_id="ses_1"))
    with capture_logs() as lines:
        for request in (StreamMessageRequest(), named):
            await Gate(SOMEBODY).stream("S.Many", Service(accepted, b"batch").many, request, Caller())
    assert [line["session_id"] for line in lines] == ["ses_new", "ses_1"]


async def test_a_stream_goes_to_the_outlet() -> None:
    """In order; the opening is told apart from the answers."""
    service, caller = Service(STREAM_OPEN, b"1", b"2"), Caller()
    with capture_logs() as lines:
        await Gate(SOMEBODY).stream("S.Many", service.many, REQUEST, caller)
    assert (caller.got, service.principals, service.closed) == (["open", b"1", b"2"], [SOMEBODY], True)
    assert [line["code"] for line in lines] == ["OK"]


@pytest.mark.parametrize("streams", [False, True])
async def test_an_error_of_the_domain_becomes_its_status(streams: bool) -> None:
    """With its code and reason in the log."""
    service, gate = Service(MessageNotFound("msg_1")), Gate(SOMEBODY)
    with capture_logs() as lines, pytest.raises(CallFailed) as caught:
        if streams:
            await gate.stream("S.Many", service.many, REQUEST, Caller())
        else:
            await gate.unary("S.One", service.one, REQUEST)
    assert caught.value.status.code == code_pb2.NOT_FOUND
    assert [(line["code"], line["reason"]) for line in lines] == [("NOT_FOUND", "MESSAGE_NOT_FOUND")]


@pytest.mark.parametrize("streams", [False, True])
async def test_an_unforeseen_error_is_told_by_its_id_alone(streams: bool) -> None:
    """The log has the rest, under the same id."""
    service, gate = Service(KeyError("secret")), Gate(SOMEBODY)
    with capture_logs() as lines, pytest.raises(CallFailed) as caught:
        if streams:
            await gate.stream("S.Many", service.many, REQUEST, Caller())
        else:
            await gate.unary("S.One", service.one, REQUEST)
    status = caught.value.status
    assert status.code == code_pb2.INTERNAL and b"secret" not in status.SerializeToString()
    info = details.RequestInfo()
    assert status.details[1].Unpack(info)
    [line] = lines
    assert (line["event"], line["request_id"], str(line["exc_info"])) == ("rpc_failed", info.request_id, "'secret'")


async def test_a_caller_that_leaves_ends_the_stream() -> None:
    """That is no error; the service's generator is closed."""
    service, caller = Service(b"1", b"2", b"3"), Caller(patience=1)
    with capture_logs() as lines:
        await Gate(SOMEBODY).stream("S.Many", service.many, REQUEST, caller)
    assert (caller.got, service.closed) == ([b"1"], True)
    assert [(line["event"], line["code"]) for line in lines] == [("rpc", "CANCELLED")]


async def test_a_cancelled_call_is_logged() -> None:
    """And stays cancelled."""
    began = asyncio.Event()

    async def waits(principal: Principal, request: object) -> bytes:
        began.set()
        await asyncio.Event().wait()
        return b""

    with capture_logs() as lines:
        call = asyncio.create_task(Gate(SOMEBODY).unary("S.Waits", waits, REQUEST))
        await began.wait()
        call.cancel()
        await asyncio.wait((call,))
    assert call.cancelled()
    assert [line["code"] for line in lines] == ["CANCELLED"]


async def test_a_session_id_that_is_not_printable_stays_out_of_the_log() -> None:
    """A caller may write anything into it; what is long is cut."""
    with capture_logs() as lines:
        for session_id in ("a\nb", "x" * 100):
            await Gate(SOMEBODY).unary("S.One", Service(b"").one, GetMessageRequest(session_id=session_id))
    assert [line["session_id"] for line in lines] == ["", "x" * 64]
