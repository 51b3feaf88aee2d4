"""Places where calls are carried out."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from opencode.event import event_pb2
from opencode.message import message_pb2
from opencode.session import session_pb2
from opencode.transfer import transfer_pb2
from turnwire.api.rights import LEAST_ROLE
from turnwire.cluster import routing
from turnwire.cluster.routing import PLACES, Lost, NotOwner, NotReached, Routed, can_repeat, key_of
from turnwire.domain.errors import OutcomeUnknown, SessionMoving
from turnwire.domain.principal import BUILT_IN, Principal, Role

MESSAGES = message_pb2.DESCRIPTOR.services_by_name["MessageService"]
EVENTS = event_pb2.DESCRIPTOR.services_by_name["EventService"]
SESSIONS = session_pb2.DESCRIPTOR.services_by_name["SessionService"]
TRANSFERS = transfer_pb2.DESCRIPTOR.services_by_name["TransferService"]
SESSION = "ses_1"
GET = message_pb2.GetMessageRequest(session_id=SESSION)
SEND = message_pb2.SendMessageRequest(session_id=SESSION)
NAMED = message_pb2.SendMessageRequest(session_id=SESSION, request_id="once")
WATCH = event_pb2.WatchEventsRequest(session_id=SESSION)


class Local:
    """Carries out all calls here, and notes their requests."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.error: Exception | None = None

    def __getattr__(self, name: str) -> Callable[[Principal, Any], Any]:
        streams = name in ("WatchEvents", "StreamMessage", "SubscribeGlobalEvents")
        return self._stream if streams else self._one

    async def _one(self, _principal: Principal, request: Any) -> bytes:
        self.calls.append(request)
        if self.error is not None:
            raise self.error
        return b"here"

    async def _stream(self, _principal: Principal, request: Any) -> AsyncGenerator[bytes]:
        self.calls.append(request)
        yield b"here"
        yield b"too"


class Owners:
    """Addresses, one after the other; the last one stays. "here" is this node."""

    def __init__(self, *addresses: str) -> None:
        self.next = deque(addresses)
        self.looks = 0

    def owner(self, _key: str) -> str | None:
        """See `Owners`."""
        return "" if self.next[0] == "here" else self.next[0] or None

    def addresses(self) -> frozenset[str]:
        """See `Owners`."""
        return frozenset(("", *self.next))

    def has_shards(self) -> bool:
        """See `Owners`."""
        return self.next[0] != ""

    async def changed(self, _seconds: float) -> None:
        """Lets the next address be the one."""
        self.looks += 1
        if len(self.next) > 1:
            self.next.popleft()
        await asyncio.sleep(0)


class Peers:
    """Answers of other nodes, one after the other: bytes, or what is raised."""

    def __init__(self, *answers: bytes | Exception) -> None:
        self.answers = deque(answers)
        self.calls: list[tuple[str, str, bytes]] = []
        self.closed = 0

    async def unary(self, address: str, method: str, _principal: Principal, request: bytes) -> bytes:
        """See `Peers`."""
        self.calls.append((address, method, request))
        answer = self.answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def stream(self, address: str, method: str, _principal: Principal, request: bytes) -> AsyncGenerator[bytes]:
        """See `Peers`."""
        self.calls.append((address, method, request))
        try:
            while self.answers:
                answer = self.answers.popleft()
                if isinstance(answer, Exception):
                    raise answer
                yield answer
        finally:
            self.closed += 1


def test_every_method_has_a_place() -> None:
    """A new method must say where it is carried out."""
    assert set(PLACES) == set(LEAST_ROLE)


def test_every_place_is_a_field_of_its_request() -> None:
    """Else the first call would find out."""
    for module in (message_pb2, event_pb2, session_pb2):
        for service in module.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                if place := PLACES[method.full_name]:
                    request = getattr(module, method.input_type.name)()
                    assert key_of(BUILT_IN, request, place) == ""


def test_a_service_with_a_method_without_a_place_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be carried out where it arrives."""
    monkeypatch.delitem(PLACES, "opencode.message.MessageService.GetMessage")  # type: ignore[arg-type]
    with pytest.raises(KeyError):
        Routed(MESSAGES, Local(), Owners("here"), Peers())


async def test_imports_go_to_the_owner_of_the_tenant() -> None:
    """Whatever they name: so that one of a tenant runs at a time, and a name is known wherever it arrives."""
    peers, tenants = Peers(b"one", b"two"), []

    class OwnersOfTenants(Owners):
        def owner(self, key: str) -> str | None:
            tenants.append(key)
            return super().owner(key)

    service: Any = Routed(TRANSFERS, Local(), OwnersOfTenants("b:1"), peers)
    request = transfer_pb2.ImportSessionsRequest(upload_id="upl_1", request_id="mine")
    anna = Principal(tenant="acme", subject="anna", role=Role.WRITER)
    assert [one async for one in service.ImportSessions(anna, request)] == [b"one", b"two"]
    assert (tenants, [method for _, method, _ in peers.calls]) == (
        ["acme"],
        ["opencode.transfer.TransferService.ImportSessions"],
    )


async def test_own_sessions_are_answered_here() -> None:
    """Nothing goes over the network."""
    local, peers = Local(), Peers()
    service: Any = Routed(MESSAGES, local, Owners("here"), peers)
    assert await service.GetMessage(BUILT_IN, GET) == b"here"
    assert len(local.calls) == 1
    assert not peers.calls


async def test_what_names_no_session_begins_here_whoever_owns_what() -> None:
    """New sessions are of shards of this node."""
    local = Local()
    messages: Any = Routed(MESSAGES, local, Owners("b:1"), Peers())
    sessions: Any = Routed(SESSIONS, local, Owners("b:1"), Peers())
    await messages.SendMessage(BUILT_IN, message_pb2.SendMessageRequest())
    await sessions.CreateSession(BUILT_IN, session_pb2.CreateSessionRequest())
    assert len(local.calls) == 2


async def test_calls_of_other_nodes_sessions_go_to_their_owner_as_bytes() -> None:
    """Unchanged, with the full name of the method."""
    local, peers = Local(), Peers(b"there")
    service: Any = Routed(MESSAGES, local, Owners("b:1"), peers)
    request = message_pb2.GetMessageRequest(session_id=SESSION, message_id="msg_1")
    assert await service.GetMessage(BUILT_IN, request) == b"there"
    assert peers.calls == [("b:1", "opencode.message.MessageService.GetMessage", request.SerializeToString())]
    assert not local.calls


@pytest.mark.parametrize("refusal", [NotOwner(), NotReached()])
async def test_a_call_that_was_not_carried_out_goes_to_the_next_owner(refusal: Exception) -> None:
    """It waits until there is another one."""
    peers, local = Peers(refusal, b"there"), Local()
    service: Any = Routed(MESSAGES, local, Owners("b:1", "c:1"), peers)
    assert await service.SendMessage(BUILT_IN, SEND) == b"there"
    assert [address for address, *_ in peers.calls] == ["b:1", "c:1"]


async def test_this_node_may_be_the_next_owner() -> None:
    """After a time without any."""
    local = Local()
    service: Any = Routed(MESSAGES, local, Owners("b:1", "", "here"), Peers(NotReached()))
    assert await service.SendMessage(BUILT_IN, SEND) == b"here"
    assert len(local.calls) == 1


async def test_a_lost_call_is_repeated_when_it_reads_or_has_a_name() -> None:
    """Under its name it is carried out once."""
    peers, owners = Peers(Lost(), b"read", Lost(), b"named"), Owners("b:1")
    service: Any = Routed(MESSAGES, Local(), owners, peers)
    assert await service.GetMessage(BUILT_IN, GET) == b"read"
    assert await service.SendMessage(BUILT_IN, NAMED) == b"named"


async def test_the_outcome_of_any_other_lost_call_is_unknown() -> None:
    """Its caller decides."""
    peers = Peers(Lost(), b"twice")
    service: Any = Routed(MESSAGES, Local(), Owners("b:1"), peers)
    with pytest.raises(OutcomeUnknown):
        await service.SendMessage(BUILT_IN, SEND)
    assert len(peers.calls) == 1


async def test_a_call_does_not_wait_for_an_owner_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its caller may try again later."""
    monkeypatch.setattr(routing, "PATIENCE_SECONDS", 0.01)
    service: Any = Routed(MESSAGES, Local(), Owners(""), Peers())
    with pytest.raises(SessionMoving):
        await service.GetMessage(BUILT_IN, GET)


async def test_streams_of_other_nodes_are_passed_on() -> None:
    """From the node that owns the session after all."""
    peers = Peers(NotOwner(), b"one", b"two")
    service: Any = Routed(EVENTS, Local(), Owners("b:1"), peers)
    assert [answer async for answer in service.WatchEvents(BUILT_IN, WATCH)] == [b"one", b"two"]
    assert peers.closed == 2


async def test_a_stream_that_has_begun_is_not_begun_again() -> None:
    """Its caller goes on with its token."""
    peers = Peers(b"one", Lost(), b"one again")
    service: Any = Routed(EVENTS, Local(), Owners("b:1"), peers)
    answers = service.WatchEvents(BUILT_IN, WATCH)
    assert await anext(answers) == b"one"
    with pytest.raises(SessionMoving):
        await anext(answers)
    assert len(peers.calls) == 1


async def test_of_a_lost_stream_that_stores_something_the_outcome_is_unknown() -> None:
    """Though it has a name: its caller has seen a part of its answers."""
    peers = Peers(b"one", Lost())
    service: Any = Routed(MESSAGES, Local(), Owners("b:1"), peers)
    answers = service.StreamMessage(BUILT_IN, message_pb2.StreamMessageRequest(message=NAMED))
    assert await anext(answers) == b"one"
    with pytest.raises(OutcomeUnknown):
        await anext(answers)


async def test_named_requests_for_something_new_have_one_place() -> None:
    """Wherever they arrive, so that of two at the same time one carries it out."""
    peers = Peers(b"made", b"made")
    sessions: Any = Routed(SESSIONS, Local(), Owners("b:1"), peers)
    messages: Any = Routed(MESSAGES, Local(), Owners("b:1"), peers)
    assert await sessions.CreateSession(BUILT_IN, session_pb2.CreateSessionRequest(request_id="once")) == b"made"
    assert await messages.SendMessage(BUILT_IN, message_pb2.SendMessageRequest(request_id="once")) == b"made"


async def test_who_owns_nothing_begins_nothing() -> None:
    """A node that has just started waits until it has a shard."""
    local, owners = Local(), Owners("", "", "here")
    sessions: Any = Routed(SESSIONS, local, owners, Peers())
    await sessions.CreateSession(BUILT_IN, session_pb2.CreateSessionRequest())
    assert owners.looks == 2


async def test_a_commit_that_came_too_late_is_made_by_the_next_owner() -> None:
    """When the call has a name; else its caller decides."""
    local = Local()
    local.error = SessionMoving()
    service: Any = Routed(MESSAGES, local, Owners("here", "b:1"), Peers(b"there"))
    assert await service.SendMessage(BUILT_IN, NAMED) == b"there"
    service = Routed(MESSAGES, local, Owners("here", "b:1"), Peers(b"there"))
    with pytest.raises(SessionMoving):
        await service.SendMessage(BUILT_IN, SEND)


async def test_a_stream_that_was_lost_before_it_began_is_begun_again() -> None:
    """Its caller has seen nothing of it."""
    service: Any = Routed(EVENTS, Local(), Owners("b:1"), Peers(Lost(), b"one"))
    assert [answer async for answer in service.WatchEvents(BUILT_IN, WATCH)] == [b"one"]


async def test_who_leaves_a_stream_leaves_it_at_the_owner_too() -> None:
    """Else watches would stay there for ever."""
    peers = Peers(b"one", b"two")
    service: Any = Routed(EVENTS, Local(), Owners("b:1"), peers)
    answers = service.WatchEvents(BUILT_IN, WATCH)
    await anext(answers)
    await answers.aclose()
    assert peers.closed == 1


async def test_streams_of_own_sessions_are_local() -> None:
    """Nothing goes over the network."""
    service: Any = Routed(EVENTS, Local(), Owners("here"), Peers())
    assert [answer async for answer in service.WatchEvents(BUILT_IN, WATCH)] == [b"here", b"too"]


def test_what_may_be_repeated() -> None:
    """StreamMessage has its name in the message."""
    stream = "opencode.message.MessageService.StreamMessage"
    assert not can_repeat(stream, message_pb2.StreamMessageRequest())
    named = message_pb2.StreamMessageRequest(message=message_pb2.SendMessageRequest(request_id="once"))
    assert can_repeat(stream, named)
    assert can_repeat("opencode.message.MessageService.GetMessages", message_pb2.GetMessagesRequest())
