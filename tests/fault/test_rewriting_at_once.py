"""Several clients rewrite conversations at once, while turns run and sessions are deleted: all stays whole."""

import asyncio
import random
from base64 import b64encode
from pathlib import Path

import grpc
import pytest

from opencode.file.file_pb2 import DownloadFileRequest
from opencode.message.content_pb2 import (
    MESSAGE_STATUS_QUEUED,
    MESSAGE_STATUS_STREAMING,
    MESSAGE_TYPE_USER,
    SessionMessage,
)
from opencode.session.session_pb2 import SESSION_STATUS_IDLE, ForkSessionRequest, RevertSessionRequest
from opencode.turn.turn_pb2 import BUSY_POLICY_INTERRUPT, BUSY_POLICY_QUEUE
from opencode.turn.turn_service_pb2 import (
    ListAlternativesRequest,
    RegenerateMessageRequest,
    SelectAlternativeRequest,
    StartTurnRequest,
)
from tests.support.clients.conversation import (
    file,
    messages_of,
    new_session,
    refusal_of,
    session_of,
    talk,
    text,
    words_of,
)
from tests.support.oracles.sound import assert_sound
from tests.support.servers.running import Client, connect, running_server

pytestmark = pytest.mark.slow

EXPECTED = {
    "TURN_IN_PROGRESS",
    "TURN_EXISTS",
    "NOTHING_TO_RESTORE",
    "SESSION_NOT_FOUND",
    "MESSAGE_NOT_FOUND",
    "STALE_VERSION",
    "INVALID_REQUEST",  # the server's own note of an abort cannot be answered again
}
"""Why a call may be refused: another one came first."""

WORDS = ("hello", "/sleep 0.03\nslow", "/tool none {}\n/step\ndone", "/rate 300\n/words 10", "/reason hm\nso")


class Rewriters:
    """Clients that do something at random, in sessions that they share."""

    def __init__(self, client: Client, seed: int) -> None:
        """Takes the client of all."""
        self._client = client
        self._random = random.Random(seed)
        self.sessions: list[str] = []

    async def act(self) -> None:
        """Does one thing."""
        session_id = self._random.choice(self.sessions)
        acts = [self._append, self._send, self._send, self._clear, self._restore, self._restore]
        acts += [self._revert, self._revert, self._start, self._start, self._fork, self._abort, self._delete]
        acts += [self._regenerate, self._regenerate, self._regenerate, self._select, self._select]
        try:
            await self._random.choice(acts)(session_id)
        except grpc.aio.AioRpcError as error:
            assert refusal_of(error).reason in EXPECTED

    async def _append(self, session_id: str) -> None:
        url = f"data:text/plain;base64,{b64encode(bytes([self._random.randrange(4)])).decode()}"
        parts = [text("note"), file(url=url, filename="a.txt")]
        await self._client.messages.AppendMessage(session_id=session_id, type=MESSAGE_TYPE_USER, parts=parts)

    async def _send(self, session_id: str) -> None:
        parts = [text(self._random.choice(WORDS))]
        await self._client.messages.SendMessage(session_id=session_id, parts=parts)

    async def _clear(self, session_id: str) -> None:
        await self._client.sessions.ClearSession(session_id=session_id)

    async def _restore(self, session_id: str) -> None:
        await self._client.sessions.RestoreSession(session_id=session_id)

    async def _revert(self, session_id: str) -> None:
        if message := await self._any(session_id):
            revert = RevertSessionRequest(session_id=session_id, before_message_id=message.message_id)
            await self._client.sessions.RevertSession(revert)

    async def _start(self, session_id: str) -> None:
        message = await self._any(session_id)
        if message is not None and message.type == MESSAGE_TYPE_USER:
            start = StartTurnRequest(session_id=session_id, user_message_id=message.message_id)
            await self._client.turns.StartTurn(start)

    async def _regenerate(self, session_id: str) -> None:
        if message := await self._any(session_id):
            request = RegenerateMessageRequest(session_id=session_id, message_id=message.message_id)
            request.busy_policy = self._random.choice((BUSY_POLICY_QUEUE, BUSY_POLICY_INTERRUPT))
            if self._random.random() < 0.4:
                request.new_parts.append(text(self._random.choice(WORDS)))
            await self._client.turns.RegenerateMessage(request)

    async def _select(self, session_id: str) -> None:
        if message := await self._any(session_id):
            asked = ListAlternativesRequest(session_id=session_id, message_id=message.message_id)
            among = (await self._client.turns.ListAlternatives(asked)).messages
            chosen = SelectAlternativeRequest(session_id=session_id, message_id=self._random.choice(among).message_id)
            await self._client.turns.SelectAlternative(chosen)

    async def _fork(self, session_id: str) -> None:
        message = await self._any(session_id)
        through = message.message_id if message is not None and self._random.random() < 0.5 else ""
        request = ForkSessionRequest(session_id=session_id, through_message_id=through)
        self.sessions.append((await self._client.sessions.ForkSession(request)).session.id)

    async def _abort(self, session_id: str) -> None:
        keep = self._random.random() < 0.5
        await self._client.messages.AbortSession(session_id=session_id, keep_queue=keep)

    async def _delete(self, session_id: str) -> None:
        if len(self.sessions) > 4 and session_id in self.sessions:
            self.sessions.remove(session_id)
            await self._client.sessions.DeleteSession(session_id=session_id)

    async def _any(self, session_id: str) -> SessionMessage | None:
        listed = await messages_of(self._client, session_id)
        return self._random.choice(listed) if listed else None


@pytest.mark.parametrize("seed", range(4))
async def test_conversations_stay_whole(tmp_path: Path, seed: int) -> None:
    """Each message names the one before it, files can be read, sessions go on, and the doctor finds nothing."""
    async with running_server(tmp_path) as server, connect(server.address) as client:
        rewriters = Rewriters(client, seed)
        rewriters.sessions.append(await new_session(client))
        for callers in (1, 6, 2, 5, 3, 4) * 6:
            await asyncio.gather(*(rewriters.act() for _ in range(callers)))
        for session_id in rewriters.sessions:
            await _check(client, session_id)
    assert_sound(tmp_path / "turnwire.db")


async def _check(client: Client, session_id: str) -> None:
    await client.messages.AbortSession(session_id=session_id)
    while (await session_of(client, session_id)).status != SESSION_STATUS_IDLE:
        await asyncio.sleep(0.01)
    listed = await messages_of(client, session_id)
    assert [m.previous_message_id for m in listed] == ["", *(m.message_id for m in listed)][: len(listed)]
    assert not [m for m in listed if m.status in (MESSAGE_STATUS_QUEUED, MESSAGE_STATUS_STREAMING)]
    for sha256 in {part.file.sha256 for message in listed for part in message.parts if part.HasField("file")}:
        request = DownloadFileRequest(session_id=session_id, sha256=sha256)
        assert b"".join([piece.data async for piece in client.files.DownloadFile(request)])
    await talk(client, "still there?", session_id)
    assert words_of((await messages_of(client, session_id))[-1]) == "still there?"
