"""Calls between two nodes, over real connections."""

import asyncio
import os
import stat
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import msgspec
import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from opencode.event import event_pb2
from opencode.message import message_pb2
from turnwire.api.gate import CallFailed
from turnwire.api.registry import Service
from turnwire.api.services import STREAM_OPEN
from turnwire.api.wire.status import status_of
from turnwire.cluster.node import SHARE, Node
from turnwire.cluster.peers import PRINCIPAL, GrpcPeers, PeerServer
from turnwire.cluster.routing import Lost, NotOwner, NotReached
from turnwire.core.servers import ServerLost
from turnwire.core.watches.unmade import Unmade
from turnwire.domain.errors import MessageNotFound, OutcomeUnknown, SessionMoving
from turnwire.domain.principal import Principal, Role

ANNA = Principal(tenant="acme", subject="anna", role=Role.WRITER)
PART = "turnwire.Node.Part"
GET, WATCH = "opencode.message.MessageService.GetMessage", "opencode.event.EventService.WatchEvents"
REQUEST = message_pb2.GetMessageRequest(session_id="ses_1", message_id="msg_1").SerializeToString()
WATCHING = event_pb2.WatchEventsRequest(session_id="ses_1").SerializeToString()


class Owner:
    """Carries out calls as it is told."""

    def __init__(self) -> None:
        self.answer: Any = b"answer"
        self.stream: list[Any] = []
        self.principals: list[Principal] = []
        self.began, self.cancelled, self.blocks = asyncio.Event(), asyncio.Event(), False

    def __getattr__(self, name: str) -> Callable[[Principal, Any], Any]:
        return self._stream if name in ("WatchEvents", "StreamMessage", "SubscribeGlobalEvents") else self._one

    async def _block(self) -> None:
        self.began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    async def _one(self, principal: Principal, _request: Any) -> Any:
        self.principals.append(principal)
        if self.blocks:
            await self._block()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def _stream(self, principal: Principal, _request: Any) -> AsyncGenerator[Any]:
        self.principals.append(principal)
        for one in self.stream:
            if isinstance(one, Exception):
                raise one
            yield one
        if self.blocks:
            await self._block()


class Pair:
    """A node and its caller."""

    def __init__(self, folder: Path) -> None:
        self.owner, self.mine = Owner(), True
        services = (
            Service(message_pb2.DESCRIPTOR.services_by_name["MessageService"], self.owner),
            Service(event_pb2.DESCRIPTOR.services_by_name["EventService"], self.owner),
        )
        self.services = services
        self.server = PeerServer(None)
        self.peers = GrpcPeers()
        self.address = f"unix:{folder}/peer"

    async def get(self) -> bytes:
        """Calls GetMessage."""
        return await self.peers.unary(self.address, GET, ANNA, REQUEST)

    async def part(self, principal: Principal, request: bytes) -> AsyncGenerator[bytes]:
        """Tells of this node, as long as it has something to tell."""
        self.owner.principals.append(principal)
        yield request
        for one in self.owner.stream:
            if isinstance(one, Exception):
                raise one
            yield one

    def watch(self) -> AsyncGenerator[bytes]:
        """Calls WatchEvents."""
        return self.peers.stream(self.address, WATCH, ANNA, WATCHING)


@pytest_asyncio.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    """Yields a node that listens, and what calls it."""
    made = Pair(tmp_path)
    made.server.bind(made.address)
    await made.server.start(made.services, lambda _: made.mine, {PART: made.part})
    yield made
    await made.peers.aclose()
    await made.server.stop(0)


async def test_a_socket_is_the_servers_own(tmp_path: Path) -> None:
    """Whatever the umask lets others do: a caller of this listener acts for any tenant."""
    server, before = PeerServer(None), os.umask(0)
    try:
        server.bind(f"unix:{tmp_path}/peer")
        assert stat.S_IMODE((tmp_path / "peer").lstat().st_mode) == 0o600
        assert os.umask(0) == 0
    finally:
        os.umask(before)
    await server.stop(0)


async def test_the_owner_carries_a_call_out_for_its_principal(pair: Pair) -> None:
    """Nobody asks for credentials a second time."""
    assert await pair.get() == b"answer"
    assert pair.owner.principals == [ANNA]


@pytest.mark.parametrize("answer", [message_pb2.GetMessageResponse(), Unmade(0, lambda: b"")])
async def test_answers_in_any_form_arrive_as_bytes(pair: Pair, answer: Any) -> None:
    """Also those that are made late."""
    pair.owner.answer = answer
    assert await pair.get() == b""


async def test_an_error_arrives_whole(pair: Pair) -> None:
    """With all its details."""
    pair.owner.answer = MessageNotFound("msg_1")
    with pytest.raises(CallFailed) as failed:
        await pair.get()
    assert failed.value.status == status_of(MessageNotFound("msg_1"))


async def test_an_outcome_that_the_owner_does_not_know_is_unknown_here(pair: Pair) -> None:
    """The gate of the caller's node writes the audit log; the owner has none to write it."""
    pair.owner.answer = OutcomeUnknown()
    with pytest.raises(OutcomeUnknown):
        await pair.get()


async def test_a_share_of_an_import_with_an_unknown_outcome_is_asked_for_again(pair: Pair) -> None:
    """As one of a node that was lost: what it has brought is not brought twice."""
    node = Node(None)
    await pair.server.stop(0)

    async def serve(_principal: Principal, _data: bytes) -> AsyncGenerator[bytes]:
        raise OutcomeUnknown
        yield b""

    pair.server = PeerServer(None)
    pair.server.bind(pair.address)
    await pair.server.start(pair.services, lambda _: True, {SHARE: serve})
    with pytest.raises(ServerLost):
        await anext(node.share(pair.address, ANNA, b""))
    await node.aclose()


async def test_a_bug_is_told_by_its_number_alone(pair: Pair) -> None:
    """The log of the owner has more."""
    pair.owner.answer = KeyError("secret")
    with pytest.raises(CallFailed) as failed:
        await pair.get()
    assert "secret" not in str(failed.value.status)


async def test_who_does_not_own_a_session_says_so_and_carries_nothing_out(pair: Pair) -> None:
    """Nor does it send the call on."""
    pair.mine = False
    with pytest.raises(NotOwner):
        await pair.get()
    with pytest.raises(NotOwner):
        await anext(pair.watch())
    assert not pair.owner.principals


async def test_a_node_that_is_not_there_is_not_reached(pair: Pair, tmp_path: Path) -> None:
    """That is known to have done nothing."""
    with pytest.raises(NotReached):
        await pair.peers.unary(f"unix:{tmp_path}/nobody", GET, ANNA, REQUEST)


async def test_a_node_that_goes_in_mid_call_leaves_its_outcome_unknown(pair: Pair) -> None:
    """It may have stored what it was asked for."""
    pair.owner.blocks = True
    calling = asyncio.create_task(pair.get())
    await pair.owner.began.wait()
    await pair.server.stop(0)
    with pytest.raises(Lost):
        await calling


async def test_who_leaves_cancels_the_call_at_its_owner(pair: Pair) -> None:
    """As if the caller were connected there."""
    pair.owner.blocks = True
    calling = asyncio.create_task(pair.get())
    await pair.owner.began.wait()
    calling.cancel()
    await pair.owner.cancelled.wait()


async def test_nodes_have_methods_of_their_own(pair: Pair) -> None:
    """They are about the node, so nobody need own anything; bytes in and out, and errors as those of any call."""
    pair.mine, pair.owner.stream = False, [b"one", SessionMoving()]
    answers = pair.peers.stream(pair.address, PART, ANNA, b"request")
    assert [await anext(answers), await anext(answers)] == [b"request", b"one"]
    with pytest.raises(CallFailed) as failed:
        await anext(answers)
    assert failed.value.status == status_of(SessionMoving())
    assert pair.owner.principals == [ANNA]


async def test_a_stream_opens_before_it_has_anything_to_say(pair: Pair) -> None:
    """So that its caller knows from when on it misses nothing."""
    pair.owner.stream, pair.owner.blocks = [STREAM_OPEN], True
    answers = pair.watch()
    assert await anext(answers) is STREAM_OPEN
    await answers.aclose()
    await pair.owner.cancelled.wait()


async def test_the_answers_of_a_stream_arrive_in_their_order(pair: Pair) -> None:
    """After its opening."""
    pair.owner.stream = [STREAM_OPEN, b"one", event_pb2.WatchEventsResponse(), b"two"]
    answers = [one async for one in pair.watch()]
    assert answers[0] is STREAM_OPEN
    assert answers[1:] == [b"one", b"", b"two"]


async def test_a_stream_fails_as_at_its_owner(pair: Pair) -> None:
    """After what came before the error."""
    pair.owner.stream = [b"one", MessageNotFound("msg_1")]
    answers = pair.watch()
    assert await anext(answers) == b"one"
    with pytest.raises(CallFailed) as failed:
        await anext(answers)
    assert failed.value.status == status_of(MessageNotFound("msg_1"))


async def test_a_stream_of_a_node_that_goes_is_lost(pair: Pair) -> None:
    """Its caller goes on with its token."""
    pair.owner.stream, pair.owner.blocks = [b"one"], True
    answers = pair.watch()
    assert await anext(answers) == b"one"
    await pair.server.stop(0)
    with pytest.raises(Lost):
        await anext(answers)


async def test_who_waits_for_a_node_that_is_given_up_learns_it_at_once(pair: Pair) -> None:
    """It may hang; whether it has carried the call out is unknown. The caller's own end is no loss."""
    pair.owner.blocks = True
    calling = asyncio.create_task(pair.get())
    await pair.owner.began.wait()
    pair.peers.drop(pair.address)
    with pytest.raises(Lost):
        await calling
    watching = pair.watch()
    reading = asyncio.create_task(anext(watching))
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading


async def test_a_session_that_moves_meanwhile_was_not_carried_out(pair: Pair) -> None:
    """A call that may be repeated goes to the next owner; of any other one, the caller learns it."""
    pair.owner.answer = SessionMoving()
    with pytest.raises(NotOwner):
        await pair.get()
    unnamed = message_pb2.SendMessageRequest(session_id="ses_1").SerializeToString()
    with pytest.raises(CallFailed) as error:
        await pair.peers.unary(pair.address, "opencode.message.MessageService.SendMessage", ANNA, unnamed)
    assert error.value.status == status_of(SessionMoving())


async def test_a_node_that_comes_back_is_reached_again(pair: Pair) -> None:
    """At the same address."""
    assert await pair.get() == b"answer"
    await pair.server.stop(0)
    with pytest.raises((NotReached, Lost)):
        await pair.get()
    pair.server = PeerServer(None)
    pair.server.bind(pair.address)
    await pair.server.start(pair.services, lambda _: True, {})
    assert await pair.get() == b"answer"


class Gone:
    """A call whose node has gone: gRPC cannot write to it."""

    def invocation_metadata(self) -> list[tuple[str, bytes]]:
        """Returns for whom it was."""
        return [(PRINCIPAL, msgspec.json.encode(ANNA))]

    def done(self) -> bool:
        """Returns whether it has ended, as far as gRPC has noticed."""
        return False

    async def write(self, _answer: bytes) -> None:
        """Raises what gRPC raises."""
        raise grpc.aio.InternalError("cannot write")


async def test_a_node_that_went_away_is_no_error(pair: Pair) -> None:
    """An answer to it cannot be written, which is nothing to look at in the log."""
    pair.owner.stream = [b"answer"]
    details: Any = SimpleNamespace(method="/opencode.event.EventService/WatchEvents")
    handler: Any = pair.server.service(details)
    with capture_logs() as logs:
        await handler.unary_stream(WATCHING, Gone())
    assert logs == []
