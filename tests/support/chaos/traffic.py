"""Random traffic in a session: every kind of change to a conversation, drawn from a seed, one after the other."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable

import grpc

from opencode.message.content_pb2 import MESSAGE_TYPE_HOST, MESSAGE_TYPE_USER, SessionMessage
from opencode.message.message_pb2 import AbortSessionRequest, AppendMessageRequest, SendMessageResponse
from opencode.session.session_pb2 import (
    SESSION_STATUS_IDLE,
    ClearSessionRequest,
    RestoreSessionRequest,
    RevertSessionRequest,
)
from opencode.tool.tool_pb2 import (
    ListOpenToolCallsRequest,
    ListPermissionsRequest,
    PermissionResponse,
    SubmitToolResultRequest,
)
from opencode.turn.turn_pb2 import BUSY_POLICY_INTERRUPT, BUSY_POLICY_STEER
from opencode.turn.turn_service_pb2 import (
    EditQueuedMessageRequest,
    ListAlternativesRequest,
    MoveQueuedMessageRequest,
    RegenerateMessageRequest,
    RemoveQueuedMessageRequest,
    SelectAlternativeRequest,
)
from tests.support.chaos.programs import END
from tests.support.clients.conversation import ask, change_of, messages_of, session_of, talk, text, tool, turn_ended
from tests.support.servers.running import Client

CONFIGURATION = """
[permissions]
"ask_*" = "ask"
[server]
shutdown_grace_seconds = 0.1
heartbeat_seconds = 1.0
[storage]
retained_events_per_session = 400
"""
"""Configuration of the server: a tool that asks, and places that are dropped after a while."""

WORLDS = "één twee drie 世界 und Grüße 🌍 👩‍👩‍👧 नमस्ते"
PAUSE_SECONDS = 0.02
PATIENCE_SECONDS = 120
"""For one thing: a hundred changes one after the other, on a machine that is busy."""


class Traffic:
    """Acts in one session, straight at the server."""

    def __init__(self, client: Client, session_id: str, seed: int, restart: Callable[[], Awaitable[Client]]) -> None:
        """Args:
        client: Of the server.
        session_id: The session.
        seed: Decides what happens.
        restart: Kills the server, starts it again, and returns a client of it.
        """
        self.session_id = session_id
        self.done: Counter[str] = Counter()
        """How often each thing happened."""
        self._client = client
        self._rng = random.Random(seed)
        self._restart = restart
        self._number = 0

    async def run(self, seconds: float) -> None:
        """Acts for a time, each thing at least once however short it is, then sends the last message."""
        await self._act(seconds, (*self._harmless, self.kill))
        await talk(self._client, END, self.session_id)

    async def once(self) -> None:
        """Does each thing once, but for killing the server."""
        await self._act(0, self._harmless)

    @property
    def _harmless(self) -> tuple[Callable[[], Awaitable[None]], ...]:
        return (
            *(self.quick, self.slow, self.large, self.tool, self.permission, self.queue, self.steer, self.interrupt),
            *(self.abort, self.failure, self.regenerate, self.edit, self.select, self.rewind, self.settings, self.note),
        )

    async def _act(self, seconds: float, things: tuple[Callable[[], Awaitable[None]], ...]) -> None:
        ends = time.monotonic() + seconds
        order: list[Callable[[], Awaitable[None]]] = []
        first = True
        while first or time.monotonic() < ends:
            if not order:
                order = self._rng.sample(things, len(things))
            thing = order.pop()
            first &= bool(order)  # a thing that is refused comes again in the next round
            async with asyncio.timeout(PATIENCE_SECONDS):
                name = thing.__name__
                try:
                    await thing()
                except grpc.aio.AioRpcError as error:
                    if error.code() is not grpc.StatusCode.FAILED_PRECONDITION:
                        raise
                    name += " refused"  # it came too early or too late
                    await self._abort()
                await self._rest()
            self.done[name] += 1

    async def quick(self) -> None:
        """An answer at once."""
        await self._say(f"Hello {WORLDS}")

    async def slow(self) -> None:
        """An answer that streams."""
        await self._say(f"/rate {self._rng.choice((30, 100, 400))}\n/reason {WORLDS}\n{WORLDS}\n{WORLDS} {WORLDS}")

    async def large(self) -> None:
        """A long answer, as fast as it can be."""
        await self._say("/words 1500")

    async def tool(self) -> None:
        """A call of a client's tool."""
        accepted = await self._send('Look.\n/tool look {"at": "世界"}\n/step\nSeen.', tools=True)
        await self._submit()
        await turn_ended(self._client, accepted)

    async def permission(self) -> None:
        """A call that asks first."""
        accepted = await self._send("Look.\n/tool ask_look {}\n/step\nSeen.", tools=True)
        asked = ListPermissionsRequest(session_id=self.session_id)
        while not (found := (await self._client.permissions.ListPermissions(asked)).permissions):
            await asyncio.sleep(PAUSE_SECONDS)
        word = self._rng.choice(("once", "reject"))
        response = PermissionResponse(session_id=self.session_id, permission_id=found[0].id, response=word)
        await self._client.permissions.RespondToPermission(response)
        if word == "once":
            await self._submit()
        await turn_ended(self._client, accepted)

    async def queue(self) -> None:
        """Messages that wait, of which one is edited, one moved and one removed."""
        await self._send("/sleep 60")
        sent = [(await self._send(f"{word} {WORLDS}")).message_id for word in ("one", "two", "three", "four")]
        turns, ids = self._client.turns, {"session_id": self.session_id}
        parts = [text("zwei"), text(WORLDS)]
        await turns.EditQueuedMessage(EditQueuedMessageRequest(message_id=sent[1], parts=parts, **ids))
        await turns.MoveQueuedMessage(MoveQueuedMessageRequest(message_id=sent[3], before_message_id=sent[0], **ids))
        await turns.RemoveQueuedMessage(RemoveQueuedMessageRequest(message_id=sent[2], **ids))
        await self._abort(keep_queue=self._rng.random() < 0.7)

    async def steer(self) -> None:
        """A message that joins the running turn."""
        accepted = await self._send("Look.\n/tool look {}\n/step\nSeen.", tools=True)
        await self._send("Look up, too.", busy_policy=BUSY_POLICY_STEER)
        await self._submit()
        await turn_ended(self._client, accepted)

    async def interrupt(self) -> None:
        """A message that ends the running turn."""
        await self._send(f"/rate 50\n{WORLDS}\n/sleep 60")
        await asyncio.sleep(self._rng.uniform(0, 0.2))
        await self._send("Now!", busy_policy=BUSY_POLICY_INTERRUPT)

    async def abort(self) -> None:
        """An answer that is aborted."""
        await self._send(f"/rate 50\n{WORLDS}\n/sleep 60")
        await asyncio.sleep(self._rng.uniform(0, 0.3))
        await self._abort()

    async def failure(self) -> None:
        """An answer that fails."""
        how = self._rng.choice(("/error failed 3", "/cut 4", "/error refused", "/refuse No.", "/finish length"))
        await self._say(f"{how}\n{WORLDS}")

    async def regenerate(self) -> None:
        """A question that is answered again."""
        if question := await self._some(MESSAGE_TYPE_USER):
            await self._again(question)

    async def edit(self) -> None:
        """A question that is edited."""
        if question := await self._some(MESSAGE_TYPE_USER):
            await self._again(question, f"Other words {WORLDS}")

    async def select(self) -> None:
        """Another alternative: watchers must read the list."""
        messages = [m for m in await messages_of(self._client, self.session_id) if m.alternative_count > 1]
        if messages:
            request = ListAlternativesRequest(
                session_id=self.session_id, message_id=self._rng.choice(messages).message_id
            )
            found = (await self._client.turns.ListAlternatives(request)).messages
            chosen = self._rng.choice(found).message_id
            selected = SelectAlternativeRequest(session_id=self.session_id, message_id=chosen)
            await self._client.turns.SelectAlternative(selected)

    async def rewind(self) -> None:
        """Messages are taken back, and brought back: watchers must read the list."""
        sessions = self._client.sessions
        message = await self._some(MESSAGE_TYPE_USER)
        if message is None:
            return
        if self._rng.random() < 0.3:
            await sessions.ClearSession(ClearSessionRequest(session_id=self.session_id))
        else:
            request = RevertSessionRequest(session_id=self.session_id, before_message_id=message.message_id)
            await sessions.RevertSession(request)
        if self._rng.random() < 0.8:
            await sessions.RestoreSession(RestoreSessionRequest(session_id=self.session_id))

    async def settings(self) -> None:
        """Another title, many times: places get old."""
        for _ in range(self._rng.choice((1, 5, 100))):
            self._number += 1
            change = change_of(self.session_id, title=f"Title {self._number}")
            await self._client.sessions.UpdateSession(change)

    async def note(self) -> None:
        """A message without a turn."""
        request = AppendMessageRequest(session_id=self.session_id, type=MESSAGE_TYPE_HOST, parts=[text(WORLDS)])
        await self._client.messages.AppendMessage(request)

    async def kill(self) -> None:
        """The server is killed in mid-answer, while a message waits."""
        await self._send(f"/rate 50\n{WORLDS}\n{WORLDS}")
        await self._send(f"I wait. {WORLDS}")
        await asyncio.sleep(self._rng.uniform(0, 0.4))
        self._client = await self._restart()

    async def _say(self, words: str) -> None:
        await talk(self._client, words, self.session_id)

    async def _send(self, words: str, *, tools: bool = False, busy_policy: int = 0) -> SendMessageResponse:
        declared = [tool("look"), tool("ask_look")] if tools else []
        request = ask(words, self.session_id, tools=declared)
        request.busy_policy = busy_policy  # type: ignore[assignment]
        answer: SendMessageResponse = await self._client.messages.SendMessage(request)
        return answer

    async def _submit(self) -> None:
        request = ListOpenToolCallsRequest(session_id=self.session_id)
        while not (calls := (await self._client.tools.ListOpenToolCalls(request)).calls):
            await asyncio.sleep(PAUSE_SECONDS)
        for call in calls:
            result = SubmitToolResultRequest(
                session_id=self.session_id, tool_call_id=call.tool_call.id, output=f"Stars. {WORLDS}"
            )
            await self._client.tools.SubmitToolResult(result)

    async def _abort(self, *, keep_queue: bool = False) -> None:
        request = AbortSessionRequest(session_id=self.session_id, keep_queue=keep_queue)
        await self._client.messages.AbortSession(request)

    async def _again(self, question: SessionMessage, words: str = "") -> None:
        parts = [text(words)] if words else []
        request = RegenerateMessageRequest(session_id=self.session_id, message_id=question.message_id, new_parts=parts)
        await self._client.turns.RegenerateMessage(request)

    async def _some(self, kind: int) -> SessionMessage | None:
        """Returns one of the newest messages of a type whose answer ends by itself and at once."""
        found = [m for m in await messages_of(self._client, self.session_id) if m.type == kind]
        harmless = [m for m in found if not any(word in str(m) for word in ("/sleep", "/tool", "/rate"))]
        return self._rng.choice(harmless[-6:]) if harmless else None

    async def _rest(self) -> None:
        """Waits until no turn runs or waits."""
        while True:
            session = await session_of(self._client, self.session_id)
            if session.status == SESSION_STATUS_IDLE and not session.queued_messages:
                return
            await asyncio.sleep(PAUSE_SECONDS)
