"""Where each call is carried out: here, or by the node that owns its session."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, Protocol

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message

from turnwire.api.admission.responses import Answer
from turnwire.api.rights import LEAST_ROLE
from turnwire.domain.errors import OutcomeUnknown, SessionMoving
from turnwire.domain.principal import Principal, Role

HERE = ""
"""Marks methods whose responses come from the database, or are the same on all nodes."""

TENANT = "*"
"""Marks methods of which all calls of a tenant are carried out in one place: by the owner of its name's shard."""

PLACES: Mapping[str, str] = {
    "opencode.agent.AgentService.ListAgents": HERE,
    "opencode.event.EventService.SubscribeGlobalEvents": HERE,
    "opencode.event.EventService.WatchEvents": "session_id",
    "opencode.file.FileService.DownloadFile": HERE,
    "opencode.file.UploadService.CreateUpload": "request_id",
    "opencode.file.UploadService.DeleteUpload": "upload_id",
    "opencode.file.UploadService.GetUpload": "upload_id",
    "opencode.file.UploadService.WriteUpload": "upload_id",
    "opencode.message.MessageService.AbortSession": "session_id",
    "opencode.message.MessageService.AppendMessage": "session_id",
    "opencode.message.MessageService.ExplainContext": "session_id",
    "opencode.message.MessageService.GetMessage": "session_id",
    "opencode.message.MessageService.GetMessages": "session_id",
    "opencode.message.MessageService.ListMessages": "session_id",
    "opencode.message.MessageService.SendMessage": "session_id",
    "opencode.message.MessageService.StreamMessage": "message.session_id",
    "opencode.provider.ProviderService.GetProviders": HERE,
    "opencode.question.QuestionService.AnswerQuestion": "session_id",
    "opencode.question.QuestionService.ListQuestions": "session_id",
    "opencode.search.SearchService.SearchMessages": HERE,
    "opencode.server.ServerService.GetServerInfo": HERE,
    "opencode.session.SessionService.ArchiveSession": "session_id",
    "opencode.session.SessionService.ClearSession": "session_id",
    "opencode.session.SessionService.CreateSession": "request_id",
    "opencode.session.SessionService.DeleteSession": "session_id",
    "opencode.session.SessionService.ForkSession": "session_id",
    "opencode.session.SessionService.GetSession": "session_id",
    "opencode.session.SessionService.ListSessions": HERE,
    "opencode.session.SessionService.RestoreSession": "session_id",
    "opencode.session.SessionService.RevertSession": "session_id",
    "opencode.session.SessionService.UnarchiveSession": "session_id",
    "opencode.session.SessionService.UpdateSession": "session_id",
    "opencode.session.SessionService.UpdateSessionDirectory": "session_id",
    "opencode.tool.PermissionService.ListPermissions": "session_id",
    "opencode.tool.PermissionService.RespondToPermission": "session_id",
    "opencode.tool.ToolService.ClaimToolCall": "session_id",
    "opencode.tool.ToolService.ListOpenToolCalls": "session_id",
    "opencode.tool.ToolService.ListTools": "session_id",
    "opencode.tool.ToolService.ReleaseToolCall": "session_id",
    "opencode.tool.ToolService.RenewToolCall": "session_id",
    "opencode.tool.ToolService.SubmitToolResult": "session_id",
    "opencode.transfer.TransferService.ExportSessions": HERE,
    "opencode.transfer.TransferService.ImportSessions": TENANT,
    "opencode.turn.TurnService.EditQueuedMessage": "session_id",
    "opencode.turn.TurnService.GetTurn": "session_id",
    "opencode.turn.TurnService.ListAlternatives": "session_id",
    "opencode.turn.TurnService.ListQueue": "session_id",
    "opencode.turn.TurnService.ListTurns": "session_id",
    "opencode.turn.TurnService.MoveQueuedMessage": "session_id",
    "opencode.turn.TurnService.RegenerateMessage": "session_id",
    "opencode.turn.TurnService.RemoveQueuedMessage": "session_id",
    "opencode.turn.TurnService.SelectAlternative": "session_id",
    "opencode.turn.TurnService.StartTurn": "session_id",
    "opencode.turn.TurnService.WatchTurn": "session_id",
    "opencode.usage.UsageService.ListQuotas": HERE,
    "opencode.usage.UsageService.QueryUsage": HERE,
}
"""The field of the request whose id decides, by the full name of the method. Of a request with an empty one its name
decides, so that it is carried out once, and one without a name is carried out here: it begins something new, or asks
about all sessions. A method without a row stops the start of a node."""

BEGINNING = frozenset(
    (
        "opencode.file.UploadService.CreateUpload",
        "opencode.message.MessageService.SendMessage",
        "opencode.message.MessageService.StreamMessage",
        "opencode.session.SessionService.CreateSession",
    )
)
"""Methods that begin something new when their requests name nothing: a node needs a shard for that."""

PATIENCE_SECONDS = 4.0
"""Maximum time for which a call waits for an owner of its session: longer than a dead node's shards are without one."""

LOOK_AGAIN_SECONDS = 0.1
"""Delay before a call that an owner did not take is tried again."""


class NotOwner(Exception):
    """The node that was asked does not own the session. Nothing was carried out."""


class NotReached(Exception):
    """There is no connection to the node. Nothing was carried out."""


class Lost(Exception):
    """The connection ended after the call was sent: it may have been carried out."""


class Owners(Protocol):
    """The owners of sessions; `cluster.ownership.Ownership` implements it."""

    def owner(self, key: str) -> str | None:
        """Returns the address of the node that owns the shard of an id, which may be stale; "" for this one.

        None when none is known.
        """
        ...

    def addresses(self) -> frozenset[str]:
        """Returns the addresses of all nodes that own shards; "" for this one, whether it does or not."""
        ...

    def has_shards(self) -> bool:
        """Returns whether this node owns any."""
        ...

    async def changed(self, seconds: float) -> None:
        """Returns when that may have changed, at the latest after some time."""
        ...


class Peers(Protocol):
    """Calls to other nodes.

    Each raises NotOwner, NotReached, Lost, and what the owner answered: OutcomeUnknown, or CallFailed with its status.
    """

    async def unary(self, address: str, method: str, principal: Principal, request: bytes) -> bytes:
        """Has a node carry out a call, and returns its answer. Cancelling this cancels it there."""
        ...

    def stream(self, address: str, method: str, principal: Principal, request: bytes) -> AsyncGenerator[bytes]:
        """Has a node carry out a stream, and yields its answers. Closing this cancels it there."""
        ...


class Routed:
    """A servicer whose calls are carried out by the owners of their sessions; in the place of the local one.

    Called as that is, so the gate admits, counts, logs and bounds a call where its caller is.
    """

    def __init__(self, descriptor: ServiceDescriptor, local: object, owners: Owners, peers: Peers) -> None:
        """Args:
        descriptor: The service.
        local: Carries out calls on this node.
        owners: The owners of shards.
        peers: Calls to other nodes.

        Raises:
            KeyError: a method has no row in `PLACES`.
        """
        self._owners, self._peers = owners, peers
        for method in descriptor.methods:
            if place := PLACES[method.full_name]:
                routed = self._streaming if method.server_streaming else self._unary
                setattr(self, method.name, routed(method.full_name, place, getattr(local, method.name)))
            else:
                setattr(self, method.name, getattr(local, method.name))

    def _unary(
        self, name: str, place: str, local: Callable[[Principal, Any], Awaitable[Answer]]
    ) -> Callable[[Principal, Any], Awaitable[Answer]]:
        async def run(principal: Principal, request: Message) -> Answer:
            search = _Search(self._owners, key_of(principal, request, place), begins=name in BEGINNING)
            while True:
                address = await search.address()
                try:
                    if not address:
                        return await local(principal, request)
                    return await self._peers.unary(address, name, principal, request.SerializeToString())
                except (NotOwner, NotReached):
                    pass
                except SessionMoving:
                    if not can_repeat(name, request):
                        raise
                except Lost:
                    if not can_repeat(name, request):
                        raise OutcomeUnknown from None
                await search.go_on()

        return run

    def _streaming(
        self, name: str, place: str, local: Callable[[Principal, Any], AsyncGenerator[Answer]]
    ) -> Callable[[Principal, Any], AsyncGenerator[Answer]]:
        async def run(principal: Principal, request: Message) -> AsyncGenerator[Answer]:
            search = _Search(self._owners, key_of(principal, request, place), begins=name in BEGINNING)
            repeatable, has_begun = can_repeat(name, request), False
            while True:
                address = await search.address()
                answers: AsyncGenerator[Answer] = (
                    self._peers.stream(address, name, principal, request.SerializeToString())
                    if address
                    else local(principal, request)
                )
                try:
                    async with contextlib.aclosing(answers):
                        async for answer in answers:
                            if not has_begun:
                                del request  # megabytes, maybe, and the stream may be open for days
                                has_begun = True
                            yield answer
                    return
                except (NotOwner, NotReached):
                    pass
                except SessionMoving:
                    if has_begun or not repeatable:
                        raise
                except Lost:
                    if has_begun and is_read(name):
                        raise SessionMoving from None
                    if has_begun or not repeatable:
                        raise OutcomeUnknown from None
                await search.go_on()

        return run


class _Search:
    """One call's search for the owner of its session."""

    def __init__(self, owners: Owners, key: str, *, begins: bool) -> None:
        self._owners, self._key = owners, key
        self._begins = begins and not key
        self._ends = asyncio.get_running_loop().time() + PATIENCE_SECONDS

    async def address(self) -> str:
        """Returns the address of the node to ask; "" when the call is to be carried out here. Raises SessionMoving."""
        while self._key:
            if (address := self._owners.owner(self._key)) is not None:
                return address
            await self.go_on()
        while self._begins and not self._owners.has_shards():
            await self.go_on()
        return ""

    async def go_on(self) -> None:
        """Waits until it may be worth to look again. Raises SessionMoving: that has lasted too long."""
        if asyncio.get_running_loop().time() >= self._ends:
            raise SessionMoving
        await self._owners.changed(LOOK_AGAIN_SECONDS)


def key_of(principal: Principal, request: Any, place: str) -> str:
    """Returns the id by which a request's shard is found; "" when it is to be carried out where it arrives."""
    if place == TENANT:
        return principal.tenant
    *path, field = place.split(".")
    for name in path:
        request = getattr(request, name)
    return str(getattr(request, field) or getattr(request, "request_id", ""))


def is_read(method: str) -> bool:
    """Returns whether a method only reads."""
    return not LEAST_ROLE[method].includes(Role.WRITER)


def can_repeat(method: str, request: Any) -> bool:
    """Returns whether a call that may have been carried out can be repeated: it only reads, or has a name."""
    if is_read(method):
        return True
    return bool(getattr(getattr(request, "message", request), "request_id", "") or getattr(request, "request_id", ""))
