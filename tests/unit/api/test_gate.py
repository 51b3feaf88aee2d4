"""The gate that every call passes, whatever listener it came by."""

import asyncio
import contextlib
import threading
import time
import weakref
from collections.abc import AsyncGenerator, Callable
from datetime import timedelta

import pytest
from google.protobuf.message import Message
from google.rpc import code_pb2
from google.rpc import error_details_pb2 as details
from google.rpc.status_pb2 import Status
from structlog.testing import capture_logs
from structlog.typing import EventDict

from opencode.message.message_pb2 import (
    GetMessageRequest,
    SendMessageRequest,
    SendMessageResponse,
    StreamMessageRequest,
    StreamMessageResponse,
)
from opencode.tool.tool_pb2 import PermissionResponse
from tests.support.fakes.core import RecordingObserver
from tests.support.fakes.identity import FakeCaller, KnownCallers, sent, some_load
from tests.support.fakes.loop import begun, cancelled, elapse, settled
from turnwire.api.admission.flow import Client
from turnwire.api.admission.requests import COUNTED_BYTES, MEMORY_OF_BYTE, CallerGone
from turnwire.api.gate import CallFailed, Gate, StreamingMethod, UnaryMethod
from turnwire.api.refusals import CANCELLED_LINES_A_SECOND, PROMPT_PER_SECOND
from turnwire.api.services import STREAM_OPEN
from turnwire.api.wire.status import status_of
from turnwire.domain.errors import MessageNotFound, OutcomeUnknown, QuotaExceeded
from turnwire.domain.principal import Principal, Role
from turnwire.ports.telemetry.line_limit import LINES_A_SECOND, LineLimit

SOMEBODY = Principal(tenant="acme", subject="eve", role=Role.READER)
CALLER = FakeCaller("Bearer eve")
WAIT = timedelta(seconds=1)
REQUEST = GetMessageRequest(session_id="ses_1").SerializeToString()
LARGE = GetMessageRequest(session_id="ses_1" * COUNTED_BYTES).SerializeToString()
SENDING = StreamMessageRequest.FromString


def somebodys_gate() -> Gate:
    """A gate that knows one caller."""
    return Gate(KnownCallers({"Bearer eve": SOMEBODY}), some_load())


def one(
    service: "Service", parse: Callable[[bytes], object] = GetMessageRequest.FromString, least_role: Role = Role.READER
) -> UnaryMethod:
    """The method of a service with one answer."""
    return UnaryMethod("S.One", least_role, parse, service.one)


def many(service: "Service", parse: Callable[[bytes], object] = GetMessageRequest.FromString) -> StreamingMethod:
    """The method of a service with many answers."""
    return StreamingMethod("S.Many", Role.READER, parse, service.many)


class Listener:
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
    """Answers what it is told to; an exception is raised, and for None there is no answer."""

    def __init__(self, *answers: Message | bytes | BaseException | None) -> None:
        self._answers = answers
        self.principals: list[Principal] = []
        self.closed = 0

    async def one(self, principal: Principal, request: object) -> Message | bytes:
        """Returns the first answer."""
        async with contextlib.aclosing(self.many(principal, request)) as answers:
            return await anext(answers)

    async def many(self, principal: Principal, request: object) -> AsyncGenerator[Message | bytes]:
        """Yields the answers."""
        self.principals.append(principal)
        try:
            for answer in self._answers:
                if isinstance(answer, BaseException):
                    raise answer
                yield await forever() if answer is None else answer
        finally:
            self.closed += 1


async def forever() -> bytes:
    """Never ends."""
    await asyncio.Event().wait()
    return b""


async def failing(service: Service, *, streams: bool) -> tuple[Status, list[EventDict]]:
    """Returns the error of a call that fails, and the lines about it."""
    gate = somebodys_gate()
    with capture_logs() as lines, pytest.raises(CallFailed) as caught:
        if streams:
            await gate.stream(many(service), sent(REQUEST), CALLER, Listener())
        else:
            await gate.unary(one(service), sent(REQUEST), CALLER)
    return caught.value.status, lines


async def test_a_call_is_carried_out_for_the_principal_and_logged() -> None:
    """One line, which names the session: that of the request, else that of the answer."""
    service = Service(SendMessageResponse(session_id="ses_new"))
    with capture_logs() as lines:
        new = await somebodys_gate().unary(one(service), sent(b""), CALLER)
        assert new == SendMessageResponse(session_id="ses_new")
        await somebodys_gate().unary(one(service), sent(REQUEST), CALLER)
    assert service.principals == [SOMEBODY, SOMEBODY]
    assert [(line["event"], line["method"], line["code"], line["session_id"]) for line in lines] == [
        ("rpc", "S.One", "OK", "ses_new"),
        ("rpc", "S.One", "OK", "ses_1"),
    ]


async def test_a_request_that_is_too_large_costs_no_memory_of_others() -> None:
    """A stranger's is refused when it has been read: the only tenant has the whole budget afterwards, too."""
    load = some_load()
    gate = Gate(KnownCallers({}), load)
    method = one(Service(b""), least_role=Role.ANONYMOUS)._replace(max_request_bytes=1024)
    with pytest.raises(CallFailed) as refused:
        await gate.unary(method, sent(LARGE), FakeCaller(address="192.0.2.9"))
    assert refused.value.status.code == code_pb2.INVALID_ARGUMENT
    half = load.requests._memory.limit // MEMORY_OF_BYTE // 2
    async with asyncio.timeout(1), contextlib.AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(load.requests.memory(Client("acme", "192.0.2.1:1"), half))


async def test_large_requests_of_one_client_do_not_hold_up_others() -> None:
    """They are parsed on one thread, and tenants at each network take turns on it."""
    parsed, go_on = list[bytes](), threading.Event()

    def parse(data: bytes) -> GetMessageRequest:
        parsed.append(data)
        assert go_on.wait(10)
        return GetMessageRequest()

    gate = somebodys_gate()
    method = one(Service(b""), parse)._replace(offload_bytes=1)
    calls = [
        asyncio.create_task(gate.unary(method, sent(data), FakeCaller("Bearer eve", address=address)))
        for data, address in [(b"many", "192.0.2.1")] * 20 + [(b"other", "192.0.2.2")]
    ]
    await settled()
    go_on.set()
    await asyncio.gather(*calls)
    assert parsed.index(b"other") <= 2


async def test_callers_without_credentials_have_some_of_the_calls() -> None:
    """Those that never bring their request, too; one network has half of that. Others have the rest."""
    load = some_load(max_calls=16)
    gate = Gate(KnownCallers({"Bearer eve": SOMEBODY}), load)
    method = one(Service(b""), least_role=Role.ANONYMOUS)
    callers = [FakeCaller(address=f"192.0.2.{host}") for host in (8, 8, 8, 9, 9, 10)]
    calls = [asyncio.create_task(gate.unary(method, forever, caller)) for caller in callers]
    await settled()
    assert [call.done() for call in calls] == [False, False, True, False, False, True]
    refused = calls[2].exception()
    assert refused.status.code == code_pb2.RESOURCE_EXHAUSTED
    assert load.calls == 4
    assert await gate.unary(method, sent(b""), CALLER) == b""
    for call in calls:
        call.cancel()
    await settled()
    assert load.calls == 0
    assert await gate.unary(method, sent(b""), callers[0]) == b""


async def test_a_large_request_is_in_work_until_its_call_has_ended() -> None:
    """The work is done also when its caller leaves: its memory is counted until then."""
    load, go_on, done = some_load(), asyncio.Event(), list[str]()

    class Waiting(Service):
        async def one(self, principal: Principal, request: object) -> Message | bytes:
            await go_on.wait()
            done.append("stored")
            return b""

    writer = Principal(tenant="acme", subject="eve", role=Role.WRITER)
    gate = Gate(KnownCallers({"Bearer eve": writer}), load)
    for data, counted in ((REQUEST, 0), (LARGE, MEMORY_OF_BYTE * len(LARGE))):
        method = one(Waiting(b""), least_role=Role.WRITER)
        call = await begun(gate.unary(method, sent(data), CALLER))
        assert load.requests._memory.in_use == counted
        call.cancel()
        await settled()
        assert call.done() == (not counted)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (load.requests._memory.in_use, done) == (0, ["stored"])


async def test_what_only_reads_ends_when_its_caller_leaves_however_large_its_request_is() -> None:
    """A stream may have nothing to say for long, and an export or a search may go on for minutes."""
    load, service = some_load(), Service(None)
    gate = Gate(KnownCallers({"Bearer eve": SOMEBODY}), load)
    calls = [
        asyncio.create_task(gate.unary(one(service), sent(LARGE), CALLER)),
        asyncio.create_task(gate.stream(many(service), sent(LARGE), CALLER, Listener())),
    ]
    await settled()
    assert load.requests._memory.in_use == 2 * MEMORY_OF_BYTE * len(LARGE)
    for call in calls:
        call.cancel()
    await settled()
    assert (load.requests._memory.in_use, service.closed, load.calls) == (0, 2, 0)
    assert [call.cancelled() for call in calls] == [True, True]


async def test_a_large_request_of_a_stream_is_in_work_until_the_first_answer() -> None:
    """The stream may go on for days, so nothing keeps the request then, if the method does not."""
    load, parsed, held = some_load(), list["weakref.ref[Request]"](), list[tuple[int, bool]]()

    class Request:
        session_id = "ses_1"

    def parse(_: bytes) -> Request:
        request = Request()
        parsed.append(weakref.ref(request))
        return request

    class Looking(Service):
        async def many(self, principal: Principal, request: object) -> AsyncGenerator[Message | bytes]:
            held.append((load.requests._memory.in_use, parsed[0]() is None))
            del request
            for _ in range(2):
                yield b""
                held.append((load.requests._memory.in_use, parsed[0]() is None))

    gate = Gate(KnownCallers({"Bearer eve": SOMEBODY}), load)
    await gate.stream(many(Looking(), parse), sent(LARGE), CALLER, Listener())
    assert held == [(MEMORY_OF_BYTE * len(LARGE), False), (0, True), (0, True)]


async def test_a_line_tells_how_long_its_call_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """In milliseconds with one decimal; it has the reason of an error, and nothing about lines that were left out."""
    now = [7.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    class Slow(Service):
        async def one(self, principal: Principal, request: object) -> Message | bytes:
            now[0] += 1.23456
            return await super().one(principal, request)

    with capture_logs() as lines:
        await somebodys_gate().unary(one(Slow(b"")), sent(REQUEST), CALLER)
        with pytest.raises(CallFailed):
            await somebodys_gate().unary(one(Slow(MessageNotFound("msg_1"))), sent(REQUEST), CALLER)
    common = {"event": "rpc", "log_level": "info", "method": "S.One", "milliseconds": 1234.6, "session_id": "ses_1"}
    assert lines == [
        {**common, "code": "OK", "reason": "", "request_id": ""},
        {**common, "code": "NOT_FOUND", "reason": "MESSAGE_NOT_FOUND", "request_id": ""},
    ]


async def test_calls_without_credentials_have_few_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody can make them. Callers who are known have one each; the next line has the number of those without."""
    now = [0.0]
    monkeypatch.setattr(LineLimit.__init__, "__defaults__", (lambda: now[0],))
    gate, service = somebodys_gate(), Service(SendMessageResponse())
    is_open = one(service)._replace(least_role=Role.ANONYMOUS)
    with capture_logs() as lines:
        for _ in range(50):
            await gate.unary(is_open, sent(REQUEST), FakeCaller())
            await gate.unary(is_open, sent(REQUEST), CALLER)
        now[0] = 1.0
        await gate.unary(is_open, sent(REQUEST), FakeCaller())
    assert len(lines) == 50 + LINES_A_SECOND + 1
    assert [line["unlogged"] for line in lines if "unlogged" in line] == [50 - LINES_A_SECOND]


async def test_cancelled_calls_have_few_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of them end together when a connection breaks, and a line each would hold the event loop."""
    now, calls = [0.0], 2 * CANCELLED_LINES_A_SECOND
    monkeypatch.setattr(LineLimit.__init__, "__defaults__", (lambda: now[0],))
    gate, service = somebodys_gate(), Service(asyncio.CancelledError())
    with capture_logs() as lines:
        for number in range(calls + 1):
            now[0] = float(number == calls)
            with pytest.raises(asyncio.CancelledError):
                await gate.unary(one(service), sent(REQUEST), CALLER)
    assert len(lines) == CANCELLED_LINES_A_SECOND + 1
    assert lines[-1]["unlogged"] == calls - CANCELLED_LINES_A_SECOND


async def test_the_line_of_a_stream_that_sends_names_the_session() -> None:
    """The message inside the request names it, else the acceptance, which comes first."""
    accepted = StreamMessageResponse(accepted=SendMessageResponse(session_id="ses_new"))
    named = StreamMessageRequest(message=SendMessageRequest(session_id="ses_1"))
    with capture_logs() as lines:
        for request in (StreamMessageRequest(), named):
            method = many(Service(accepted, b"batch"), SENDING)
            await somebodys_gate().stream(method, sent(request.SerializeToString()), CALLER, Listener())
    assert [line["session_id"] for line in lines] == ["ses_new", "ses_1"]


async def test_a_stream_goes_to_the_outlet() -> None:
    """In order; the opening is told apart from the answers."""
    service, caller = Service(STREAM_OPEN, b"1", b"2"), Listener()
    with capture_logs() as lines:
        await somebodys_gate().stream(many(service), sent(REQUEST), CALLER, caller)
    assert (caller.got, service.principals, service.closed) == (["open", b"1", b"2"], [SOMEBODY], 1)
    assert [line["code"] for line in lines] == ["OK"]


@pytest.mark.parametrize("streams", [False, True])
async def test_an_error_of_the_domain_becomes_its_status(streams: bool) -> None:
    """With its code and reason in the log."""
    status, lines = await failing(Service(MessageNotFound("msg_1")), streams=streams)
    assert status.code == code_pb2.NOT_FOUND
    assert [(line["code"], line["reason"]) for line in lines] == [("NOT_FOUND", "MESSAGE_NOT_FOUND")]


@pytest.mark.parametrize("streams", [False, True])
async def test_an_error_of_another_node_keeps_its_status_and_reason(streams: bool) -> None:
    """The log here is the only one with the call."""
    answered = status_of(MessageNotFound("msg_1"))
    status, lines = await failing(Service(CallFailed(answered)), streams=streams)
    assert status == answered
    assert [(line["code"], line["reason"]) for line in lines] == [("NOT_FOUND", "MESSAGE_NOT_FOUND")]


@pytest.mark.parametrize("streams", [False, True])
async def test_an_unforeseen_error_is_told_by_its_id_alone(streams: bool) -> None:
    """The log has the rest, under the same id."""
    status, lines = await failing(Service(KeyError("secret")), streams=streams)
    assert status.code == code_pb2.INTERNAL and b"secret" not in status.SerializeToString()
    info = details.RequestInfo()
    assert status.details[1].Unpack(info)
    [line] = lines
    assert (line["event"], line["request_id"], str(line["exc_info"])) == ("rpc_failed", info.request_id, "'secret'")


async def test_a_caller_that_leaves_ends_the_stream() -> None:
    """That is no error; the service's generator is closed."""
    service, caller = Service(b"1", b"2", b"3"), Listener(patience=1)
    with capture_logs() as lines:
        await somebodys_gate().stream(many(service), sent(REQUEST), CALLER, caller)
    assert (caller.got, service.closed) == ([b"1"], 1)
    assert [(line["event"], line["code"]) for line in lines] == [("rpc", "CANCELLED")]


async def test_a_cancelled_call_is_logged() -> None:
    """And stays cancelled."""
    service = Service(None)
    with capture_logs() as lines:
        call = await begun(somebodys_gate().unary(one(service), sent(REQUEST), CALLER))
        assert service.principals == [SOMEBODY]
        await cancelled(call)
    assert call.cancelled()
    assert [line["code"] for line in lines] == ["CANCELLED"]


@pytest.mark.parametrize("failure", [None, OutcomeUnknown()], ids=["its caller left", "its node was lost"])
async def test_an_audited_call_without_an_outcome_is_in_the_audit_log(failure: OutcomeUnknown | None) -> None:
    """Else whoever leaves at once approves without a trace: what was begun is carried out."""
    name = "opencode.tool.PermissionService.RespondToPermission"
    method = one(Service(failure), PermissionResponse.FromString)._replace(name=name)
    with capture_logs() as lines:
        call = await begun(somebodys_gate().unary(method, sent(b""), CALLER))
        await cancelled(call)
    assert [(line["action"], line["outcome"]) for line in lines if line["event"] == "audit"] == [
        ("permission_answered", "unknown")
    ]


async def test_a_session_id_that_is_not_printable_stays_out_of_the_log() -> None:
    """A caller may write anything into it; what is long is cut."""
    with capture_logs() as lines:
        for session_id in ("a\nb", "x" * 100):
            request = GetMessageRequest(session_id=session_id).SerializeToString()
            await somebodys_gate().unary(one(Service(b"")), sent(request), CALLER)
    assert [line["session_id"] for line in lines] == ["", "x" * 64]


async def test_a_caller_is_refused_before_its_request_is_parsed() -> None:
    """Neither the parser nor the service runs; one line has the cause, which the caller does not get."""
    service, parsed = Service(b""), list[bytes]()
    with capture_logs() as lines, pytest.raises(CallFailed) as refused:
        await somebodys_gate().unary(one(service, parsed.append), sent(REQUEST), FakeCaller("Bearer wrong"))
    assert (refused.value.status.code, parsed, service.principals) == (code_pb2.UNAUTHENTICATED, [], [])
    assert [(line["event"], line["cause"], line["address"]) for line in lines] == [
        ("caller_refused", "not known", "192.0.2.1")
    ]
    assert "not known" not in str(refused.value.status)


async def test_addresses_of_a_network_are_refused_as_one() -> None:
    """A client that has a /64 of IPv6 guesses no faster when it comes from another address each time."""
    gate, service = somebodys_gate(), Service(b"")
    callers = [FakeCaller("Bearer wrong", address=f"2001:db8::{number:x}") for number in range(3 * PROMPT_PER_SECOND)]
    calls = [asyncio.create_task(gate.unary(one(service), sent(REQUEST), caller)) for caller in callers]
    await settled()
    held = [call for call in calls if not call.done()]
    assert len(held) >= PROMPT_PER_SECOND  # also when a second ends meanwhile
    for call in held:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)


async def test_bytes_that_are_no_message_are_an_invalid_request() -> None:
    """A broken client gets an error that it can act upon, and nothing of the service runs."""
    service = Service(b"")
    with pytest.raises(CallFailed) as refused:
        await somebodys_gate().unary(one(service), sent(b"\xff\xff"), CALLER)
    assert (refused.value.status.code, service.principals) == (code_pb2.INVALID_ARGUMENT, [])


async def test_a_stream_ends_when_its_credentials_end() -> None:
    """Before its next answer: a token that is revoked shows nothing more."""
    known, listener = {"Bearer eve": SOMEBODY}, Listener()

    class Revoking(Service):
        async def many(self, principal: Principal, request: object) -> AsyncGenerator[Message | bytes]:
            yield b"1"
            del known["Bearer eve"]
            yield b"2"

    with pytest.raises(CallFailed) as ended:
        await Gate(KnownCallers(known), some_load()).stream(many(Revoking()), sent(REQUEST), CALLER, listener)
    assert (ended.value.status.code, listener.got) == (code_pb2.UNAUTHENTICATED, [b"1"])


async def test_every_call_is_reported_from_its_start_to_its_end() -> None:
    """However it ends."""
    observer = RecordingObserver()
    gate = Gate(KnownCallers({"Bearer eve": SOMEBODY}), some_load(), observer=observer)
    for service in (Service(b""), Service(MessageNotFound("msg_1")), Service(KeyError("bug"))):
        with capture_logs(), contextlib.suppress(CallFailed):
            await gate.unary(one(service), sent(REQUEST), CALLER)
    with capture_logs(), contextlib.suppress(CallFailed):
        await gate.unary(one(Service(b"")), sent(REQUEST), FakeCaller("Bearer wrong"))
    call = await begun(gate.unary(one(Service(None))._replace(name="S.Waits"), sent(REQUEST), CALLER))
    assert observer.calls[-1] == ("started", "S.Waits", "")
    call.cancel()
    with capture_logs():
        await asyncio.wait((call,))
    codes = ["OK", "NOT_FOUND", "INTERNAL", "UNAUTHENTICATED"]
    ended = [(name, code) for what, name, code in observer.calls if what == "ended"]
    assert ended == [*(("S.One", code) for code in codes), ("S.Waits", "CANCELLED")]


async def test_requests_are_counted_for_the_tenant_of_the_caller() -> None:
    """Before the request is parsed, and only when the caller is known."""
    counted: list[str] = []
    gate = Gate(KnownCallers({"Bearer eve": SOMEBODY}), some_load(), counted.append)
    service = Service(StreamMessageResponse())
    await gate.unary(one(service), sent(REQUEST), CALLER)
    with pytest.raises(CallFailed):
        await gate.unary(one(service), sent(REQUEST), FakeCaller("Bearer mallory"))
    assert counted == ["acme"]


async def test_a_further_request_is_received_after_its_caller_was_admitted() -> None:
    """And parsed after it was counted: whoever is not known any more, or sends too much, costs little."""
    seen, callers = list[str](), KnownCallers({"Bearer eve": SOMEBODY})

    def count(_: str) -> None:
        seen.append("counted")
        if seen.count("counted") > 1:
            raise QuotaExceeded("too much", "acme", quota="requests_per_second", limit=1, used=1, retry_after=WAIT)

    async def receive() -> bytes:
        seen.append("received")
        return REQUEST

    method = many(Service(), lambda _: seen.append("parsed"))
    gate = Gate(callers, some_load(), count)
    await gate.further(method, receive, CALLER)
    assert seen == ["received", "counted", "parsed"]
    with pytest.raises(CallFailed) as failed:
        await gate.further(method, receive, CALLER)
    assert (failed.value.status.code, seen[3:]) == (code_pb2.RESOURCE_EXHAUSTED, ["received", "counted"])
    with pytest.raises(CallFailed) as failed:
        await gate.further(method, receive, FakeCaller("Bearer mallory"))
    assert (failed.value.status.code, seen[5:]) == (code_pb2.UNAUTHENTICATED, [])


async def test_a_tenant_that_sends_too_much_fills_no_log() -> None:
    """Each call gets the error, most of them late; a few lines a second say that it happens."""

    def refuse(tenant: str) -> None:
        raise QuotaExceeded("too much", tenant, quota="requests_per_second", limit=1, used=1, retry_after=WAIT)

    gate, service = Gate(KnownCallers({"Bearer eve": SOMEBODY}), some_load(), refuse), Service(StreamMessageResponse())
    with capture_logs() as lines:
        calls = [asyncio.create_task(gate.unary(one(service), sent(REQUEST), CALLER)) for _ in range(100)]
        await elapse(timedelta(seconds=2))
        failed = await asyncio.gather(*calls, return_exceptions=True)
    codes = {error.status.code for error in failed if isinstance(error, CallFailed)}
    assert (codes, len(failed), service.principals) == ({code_pb2.RESOURCE_EXHAUSTED}, 100, [])
    assert 0 < len(lines) <= 2 * LINES_A_SECOND
    assert {(line["event"], line["cause"]) for line in lines} == {("caller_refused", "requests of tenant acme")}


async def test_a_long_request_to_a_method_with_short_ones_is_not_parsed() -> None:
    """Methods that are open to everybody are called with a few bytes."""
    parsed: list[bytes] = []
    method = one(Service(), parsed.append)._replace(max_request_bytes=4)
    with pytest.raises(CallFailed) as failed:
        await somebodys_gate().unary(method, sent(bytes(5)), CALLER)
    assert failed.value.status.code == code_pb2.INVALID_ARGUMENT and not parsed
