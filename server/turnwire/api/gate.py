"""The pipeline of every call, whichever listener received it: admission, the log line, and errors as statuses.

Independent of transports. A listener hands what receives the request and what it knows about the caller to `Gate.unary`
or `Gate.stream`, and writes answers or the status of a `CallFailed` in its own form. A request is received and parsed
after its caller has been admitted: who is refused costs no more than the head of a call.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, Protocol

import structlog
from google.protobuf.message import DecodeError, Message
from google.rpc import status_pb2
from msgspec.structs import replace

from turnwire.api import audit
from turnwire.api.admission.flow import Client
from turnwire.api.admission.large_messages import LargeMessages
from turnwire.api.admission.overload import InFlight, Overload
from turnwire.api.admission.requests import CallerGone
from turnwire.api.admission.responses import Answer, Answers, StreamAnswers, WhenSent
from turnwire.api.refusals import CANCELLED_LINES_A_SECOND
from turnwire.api.rights import BEGINS_WORK
from turnwire.api.services import STREAM_OPEN
from turnwire.api.wire.status import code_name, internal_status, reason_of, status_of
from turnwire.domain.errors import (
    DomainError,
    InvalidRequest,
    LimitReached,
    OutcomeUnknown,
    PermissionDenied,
    QuotaExceeded,
    TooManySignIns,
    Unauthenticated,
)
from turnwire.domain.ids import new_id
from turnwire.domain.networks import network_of
from turnwire.domain.principal import ANONYMOUS, TENANT_NAME, Principal, Role
from turnwire.event_loop.owner import own
from turnwire.ports.identity.authenticator import Authenticator, Caller
from turnwire.ports.telemetry.line_limit import LineLimit
from turnwire.ports.telemetry.observer import Observer

NO_METHOD = "none"
"""The method in logs and metrics of a call that reaches none."""

log = structlog.get_logger()


class CallFailed(Exception):
    """A call ended with an error, which is already logged."""

    def __init__(self, status: status_pb2.Status) -> None:
        """Takes the status for the caller."""
        super().__init__(status.message)
        self.status = status


class Outlet(Protocol):
    """Receives the answers of one stream. `send` sets the pace of the stream."""

    async def open(self) -> None:
        """Confirms to the caller that the stream has begun. Raises CallerGone."""
        ...

    async def send(self, answer: Message | bytes) -> None:
        """Sends one answer and returns when the next may be sent. Raises CallerGone."""
        ...


Receive = Callable[[], Awaitable[bytes]]
"""Returns the bytes of a request once they have arrived. Raises CallFailed for a request that the listener refuses, and
CallerGone. Called once, after its caller was admitted."""


class UnaryMethod(NamedTuple):
    """A method with one answer."""

    name: str
    """Full name, such as `opencode.message.MessageService.SendMessage`."""
    least_role: Role
    parse: Callable[[bytes], Any]
    """Returns the request. Raises DecodeError."""
    run: Callable[[Principal, Any], Awaitable[Answer]]
    """The service's method."""
    max_request_bytes: int | None = None
    """Longer requests are refused; None leaves it to the listener."""
    offload_bytes: int | None = None
    """Size from which requests are parsed on a worker thread; None if parsing is always quick."""


class StreamingMethod(NamedTuple):
    """A method with a stream of answers."""

    name: str
    least_role: Role
    parse: Callable[[bytes], Any]
    run: Callable[[Principal, Any], AsyncGenerator[Answer]]
    """The service's method; its generator is always closed."""
    max_request_bytes: int | None = None
    """Longer requests are refused; None leaves it to the listener. A listener may keep them as long as the stream."""
    offload_bytes: int | None = None
    """As of `UnaryMethod`."""


def too_long(max_bytes: int) -> InvalidRequest:
    """Returns the error of a request that is larger than its method takes."""
    return InvalidRequest.of("request", f"is larger than {max_bytes} bytes", "TOO_LONG", limitValue=str(max_bytes))


class Access:
    """Turns callers into principals with the right to make a call. Keeps no state of a call."""

    def __init__(self, authenticator: Authenticator) -> None:
        """Takes what identifies callers."""
        self._authenticator = authenticator

    async def admit(self, method: str, least_role: Role, caller: Caller) -> Principal:
        """Returns the principal for whom a call acts. Safe to cancel.

        Raises:
            Unauthenticated: the credentials are missing or not valid.
            TooManySignIns: too many credentials are being checked.
            PermissionDenied: the role does not suffice, or the caller may not act for the tenant that it names.
            InvalidRequest: an admin names something that is not the name of a tenant.
        """
        principal = self._authenticator.recall(caller)
        if principal is None:
            principal = await self._authenticator.verify(caller)
        if not principal.role.includes(least_role):
            if principal is ANONYMOUS:
                raise Unauthenticated("no credentials", missing=True)
            raise PermissionDenied.of(f"this call needs the role {least_role}", principal.role, least_role)
        tenant = caller.tenant
        if tenant is None or tenant == principal.tenant or principal is ANONYMOUS:
            return principal
        if principal.role is not Role.ADMIN:
            raise PermissionDenied.of("only an admin may act for another tenant", principal.role, Role.ADMIN)
        if not TENANT_NAME.fullmatch(tenant):
            raise InvalidRequest.of("turnwire-tenant", "is not the name of a tenant")
        audit.record_other_tenant(principal, tenant, method)
        return replace(principal, tenant=tenant)

    async def check_still_valid(self, caller: Caller) -> None:
        """Ends a stream whose credentials have expired or were revoked since it was admitted. Safe to cancel.

        Credentials that are no longer remembered, as after a key was withdrawn, are checked again. When there is no
        budget for that, the next answer of the stream decides: wrong tokens of others do not end it.

        Raises:
            Unauthenticated: they are no longer valid.
        """
        if self._authenticator.recall(caller) is None:
            with contextlib.suppress(TooManySignIns):
                await self._authenticator.verify(caller)


class Gate:
    """Runs every call. All listeners share one gate; it keeps no state of a call."""

    def __init__(
        self,
        authenticator: Authenticator,
        overload: Overload,
        count: Callable[[str], None] = lambda _: None,
        observer: Observer = Observer(),  # noqa: B008 - has no state
    ) -> None:
        """Args:
        authenticator: Identifies callers.
        overload: Bounds the calls of all listeners together.
        count: Counts a request of a tenant; raises QuotaExceeded when it has no more.
        observer: Gets a report of each call.
        """
        self._access = Access(authenticator)
        self._overload, self._requests = overload, overload.requests
        self._large_messages = LargeMessages()
        self._answers = Answers(overload, self._large_messages)
        self._refusals = overload.refusals
        self._count = count
        self._observer = observer
        self._stranger_lines, self._cancelled_lines = LineLimit(), LineLimit(lines_a_second=CANCELLED_LINES_A_SECOND)

    async def unary(
        self, method: UnaryMethod, receive: Receive, caller: Caller, when_sent: WhenSent | None = None
    ) -> Message | bytes:
        """Carries out a call and returns its one answer. Cancelling this cancels the implementation.

        Args:
            method: The called method.
            receive: Returns the encoded request.
            caller: The sender of the call.
            when_sent: Tells when the answer is sent, for the call counts until then; None if it does when this returns.

        Raises:
            CallFailed: the call failed for any reason.
            CallerGone: the caller left before its request was there.
        """
        if when_sent is None:
            with contextlib.ExitStack() as sent:
                return await self.unary(method, receive, caller, sent.callback)
        answer: Message | bytes | None = None
        call = _Call(method.name, self._observer, self._stranger_lines, self._cancelled_lines)
        with call.log_outcome():
            taken = self._enter(method.name, caller)
            when_sent(partial(self._overload.leave, taken))
            client, principal, data = await self._received(method, receive, caller, call, taken)
            async with self._requests.memory(client, len(data), only_reads=_only_reads(method)) as finish:
                request = await self._parsed(method, data, client)
                call.note_session(request)
                del data
                run = partial(finish, partial(method.run, principal, request))
                try:
                    answer = await self._answers.one(method.name, run, client, when_sent)
                except (asyncio.CancelledError, OutcomeUnknown):
                    audit.record_call(principal, method.name, request, is_known=False)
                    raise
            call.note_session(answer)
            audit.record_call(principal, method.name, request)
        if answer is None:
            raise CallerGone
        return answer

    async def stream(self, method: StreamingMethod, receive: Receive, caller: Caller, outlet: Outlet) -> None:
        """Carries out a call with a stream of answers; returns when the stream has ended or its caller is gone.

        The stream fails before its next answer when the caller's credentials are no longer valid. Cancelling this
        cancels the implementation.

        Args:
            method: The called method.
            receive: Returns the encoded request.
            caller: The sender of the call.
            outlet: Receives the answers.

        Raises:
            CallFailed: the implementation or the outlet failed for any reason.
        """
        call = _Call(method.name, self._observer, self._stranger_lines, self._cancelled_lines)
        with call.log_outcome():
            taken = self._enter(method.name, caller)
            try:
                client, principal, data = await self._received(method, receive, caller, call, taken)
                async with contextlib.AsyncExitStack() as stack:
                    sent = stack.enter_context(contextlib.closing(StreamAnswers(self._answers, client, outlet.send)))

                    async def send(answer: Answer) -> None:
                        await self._access.check_still_valid(caller)
                        if answer is STREAM_OPEN:
                            await outlet.open()
                        else:
                            call.note_session(answer)
                            await sent.send(answer)

                    async with self._requests.memory(client, len(data), only_reads=_only_reads(method)) as finish:
                        request = await self._parsed(method, data, client)
                        call.note_session(request)
                        answers = await stack.enter_async_context(contextlib.aclosing(method.run(principal, request)))
                        del data, request  # megabytes, maybe, and the stream may be open for days
                        first = await finish(partial(anext, answers, None))
                    if first is not None:
                        await send(first)
                    async for answer in answers:
                        await send(answer)
            finally:
                self._overload.leave(taken)

    def _enter(self, name: str, caller: Caller) -> InFlight:
        """Counts the call, and makes what follows work of its connection. Raises _Refused: there are too many."""
        connection = caller.connection()
        own(connection)
        try:
            return self._overload.enter(caller.metadata_bytes, begins_work=name in BEGINS_WORK, connection=connection)
        except LimitReached as error:  # a line for each would be one more burden
            status = status_of(error)
            self._refusals.log(name, code_name(status.code), error.message, caller.address())
            raise _Refused(status) from None

    async def _received(
        self, method: UnaryMethod | StreamingMethod, receive: Receive, caller: Caller, call: "_Call", taken: InFlight
    ) -> tuple[Client, Principal, bytes]:
        """Admits the caller, and only then receives what it asks for."""
        principal = await self._identify(method.name, method.least_role, caller)
        if principal is ANONYMOUS:
            call.is_of_stranger = True
            self._overload.count_anonymous(taken)
        await self._take_request(principal, method.name, caller)
        try:
            data = await self._read(method, receive, caller, principal)
        except (asyncio.CancelledError, CallerGone):
            call.is_reset = True
            raise
        return Client(principal.tenant, caller.connection()), principal, data

    async def _read(
        self, method: UnaryMethod | StreamingMethod, receive: Receive, caller: Caller, principal: Principal
    ) -> bytes:
        """Returns the bytes of a request. Raises InvalidRequest: they are too many, which costs no budget of others."""
        reads = self._overload.anonymous_reads if principal is ANONYMOUS else self._overload.reads
        data = await reads.read(caller.connection(), receive)
        if method.max_request_bytes is not None and len(data) > method.max_request_bytes:
            raise too_long(method.max_request_bytes)
        return data

    async def _parsed(self, method: UnaryMethod | StreamingMethod, data: bytes, client: Client) -> Any:
        try:
            if method.offload_bytes is not None and len(data) >= method.offload_bytes:
                return await self._large_messages.run(client, partial(method.parse, data))
            return method.parse(data)
        except DecodeError:
            raise InvalidRequest.of("request", "its bytes are not a message of this method") from None

    async def further(self, method: StreamingMethod, receive: Receive, caller: Caller) -> Any:
        """Receives a further request of a stream and returns it. It counts as a request of its tenant once it has
        arrived.

        Args:
            method: The method of the stream.
            receive: Returns the encoded request; what else it raises is raised here.
            caller: The sender of the call.

        Raises:
            CallFailed: the caller may not, or not now.
            DomainError: the request is none, or the caller no longer known; both end the stream.
        """
        principal = await self._identify(method.name, method.least_role, caller)
        data = await self._read(method, receive, caller, principal)
        await self._take_request(principal, method.name, caller)
        return await self._parsed(method, data, Client(principal.tenant, caller.connection()))

    def refused(self, code: str, cause: str, address: str) -> None:
        """Logs and counts a call that reaches no method.

        Args:
            code: The name of its status.
            cause: Why it was refused; nothing that the caller wrote.
            address: Where it came from.
        """
        self._refusals.log(NO_METHOD, code, cause, address)
        self._observer.call_started(NO_METHOD)
        self._observer.call_ended(NO_METHOD, code, 0.0)

    async def _identify(self, name: str, least_role: Role, caller: Caller) -> Principal:
        try:
            return await self._access.admit(name, least_role, caller)
        except Unauthenticated as error:
            raise await self._refused(error, name, caller, error.cause, of=network_of(caller.address())) from None
        except TooManySignIns as error:
            raise await self._refused(error, name, caller, error.message, of=network_of(caller.address())) from None

    async def _take_request(self, principal: Principal, name: str, caller: Caller) -> None:
        """Counts a request of a tenant. Raises _Refused: it has no more."""
        try:
            self._count(principal.tenant)
        except QuotaExceeded as error:  # a line for each would be what the rate should prevent
            cause = f"requests of tenant {audit.printable(principal.tenant)}"
            raise await self._refused(error, name, caller, cause, of=cause) from None

    async def _refused(self, error: DomainError, name: str, caller: Caller, cause: str, *, of: str) -> "_Refused":
        """Returns what ends the call, when its caller may know; see `Refusals.note`."""
        status = status_of(error)
        await self._refusals.note(name, code_name(status.code), cause, caller.address(), of=of)
        return _Refused(status)


def _only_reads(method: UnaryMethod | StreamingMethod) -> bool:
    """Returns whether a call ends completely when it is cancelled: no such method stores anything for its caller."""
    return not method.least_role.includes(Role.WRITER)


class _Refused(CallFailed):
    """The caller was not identified, or sends too much; that is logged already, within a limit."""


class _Call:
    """One call, for its log line and its errors."""

    def __init__(self, method: str, observer: Observer, stranger_lines: LineLimit, cancelled_lines: LineLimit) -> None:
        self.is_of_stranger = False
        """Whether the caller has no credentials: anybody can make many such calls, so few of them get a line."""
        self.is_reset = False
        """Whether its caller left before the request had arrived: a client can do so many times a second, too."""
        self._method = method
        self._stranger_lines, self._cancelled_lines = stranger_lines, cancelled_lines
        self._observer = observer
        self._session_id = ""
        self._started = time.perf_counter()
        observer.call_started(method)

    def note_session(self, value: Any) -> None:
        """Takes the session from a request or an answer, unless an earlier one named it.

        The request of StreamMessage has it in `message`, the first answer in `accepted`.
        """
        if not self._session_id and not isinstance(value, bytes):
            places = (value, getattr(value, "message", None), getattr(value, "accepted", None))
            self._session_id = next(filter(None, (getattr(place, "session_id", "") for place in places)), "")

    @contextlib.contextmanager
    def log_outcome(self) -> Iterator[None]:
        """Writes one log line when the body ends in any way, and turns errors into CallFailed.

        A caller that is gone is not an error.
        """
        try:
            yield
        except CallerGone:
            self._log("CANCELLED")
        except _Refused as refused:
            self._report(code_name(refused.status.code))
            raise
        except CallFailed as failed:  # the listener refuses the request, or another node answered so
            self._log(code_name(failed.status.code), reason_of(failed.status))
            raise
        except DomainError as error:
            status = status_of(error)
            self._log(code_name(status.code), error.reason)
            raise CallFailed(status) from error
        except Exception as error:
            request_id = new_id("rpc")
            log.error("rpc_failed", method=self._method, request_id=request_id, exc_info=error)
            self._report("INTERNAL")
            raise CallFailed(internal_status(request_id)) from error
        except BaseException:
            self._log("CANCELLED")
            raise
        else:
            self._log("OK")

    def _log(self, code: str, reason: str = "") -> None:
        """Writes the log line, without any content of the request."""
        seconds = self._report(code)
        unlogged: int | None = 0
        if self.is_of_stranger or self.is_reset:
            unlogged = self._stranger_lines.take()
        elif code == "CANCELLED":
            unlogged = self._cancelled_lines.take()
        if unlogged is None:
            return
        log.info(
            "rpc",
            method=self._method,
            code=code,
            reason=reason,
            milliseconds=round(seconds * 1000, 1),
            session_id=audit.printable(self._session_id),
            request_id="",
            **({"unlogged": unlogged} if unlogged else {}),
        )

    def _report(self, code: str) -> float:
        """Reports the end of the call. Returns how many seconds it took."""
        seconds = time.perf_counter() - self._started
        self._observer.call_ended(self._method, code, seconds)
        return seconds
