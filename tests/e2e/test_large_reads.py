"""Requests that read a large message again have a place for that, or are refused and change nothing."""

import asyncio
from pathlib import Path

import pytest

from opencode.message.content_pb2 import MESSAGE_TYPE_USER
from opencode.message.message_pb2 import AppendMessageRequest
from opencode.turn.turn_pb2 import BUSY_POLICY_STEER
from opencode.turn.turn_service_pb2 import EditQueuedMessageRequest
from tests.support.clients.conversation import FOREVER, ask, messages_of, new_session, refused, session_of, text
from tests.support.servers.running import connect, running_server
from turnwire.core import memory
from turnwire.core.memory import ReadBudget

LONG = "words " * 50_000


async def test_without_room_nothing_is_read_or_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is named; what reads no message needs no room."""
    rooms = list[ReadBudget]()
    made = ReadBudget.__init__

    def note(room: ReadBudget) -> None:
        made(room)
        rooms.append(room)

    monkeypatch.setattr(ReadBudget, "__init__", note)
    monkeypatch.setattr(memory, "PATIENCE_SECONDS", 0.0)
    async with running_server(tmp_path) as server, connect(server.address) as client:
        running = await client.messages.SendMessage(ask(FOREVER))
        ids = {"session_id": running.session_id}
        waiting = [await client.messages.SendMessage(ask(LONG, running.session_id)) for _ in range(2)]
        session_id = await new_session(client)
        append = AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_USER, parts=[text(LONG)])
        other = await client.messages.AppendMessage(append)
        [room] = rooms
        await room.acquire("other", room.limit)
        before = (await session_of(client, running.session_id)).head_sequence
        calls = (
            client.turns.EditQueuedMessage(**ids, message_id=waiting[0].message_id, busy_policy=BUSY_POLICY_STEER),
            client.turns.RegenerateMessage(**ids, message_id=running.message_id),
            client.turns.StartTurn(session_id=session_id, user_message_id=other.message_id),
        )
        for call in calls:
            refusal = await refused(call)
            assert (refusal.reason, refusal.metadata["limit"]) == ("CONCURRENCY_LIMIT", "MAX_READ_BYTES")
        assert (await session_of(client, running.session_id)).head_sequence == before
        await client.turns.RemoveQueuedMessage(**ids, message_id=waiting[1].message_id)
        room.release("other", room.limit)
        edit = EditQueuedMessageRequest(**ids, message_id=waiting[0].message_id, busy_policy=BUSY_POLICY_STEER)
        edited = await client.turns.EditQueuedMessage(edit)
        assert edited.message == (await messages_of(client, running.session_id))[-1]
        assert edited.message.parts[0].text.text == LONG
        assert edited.revision == (await client.turns.ListQueue(**ids)).revision
        await asyncio.gather(*(client.turns.EditQueuedMessage(edit) for _ in range(3)))
        assert room.in_use == 0
