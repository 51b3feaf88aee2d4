"""What a server says of its own end."""

import json
from pathlib import Path
from typing import Any

import pytest

from opencode.message.message_pb2 import SendMessageRequest
from tests.support.clients.conversation import ask, refused_unless_gone, tool, watching
from tests.support.servers.process import ServerProcess, server_process
from tests.support.servers.running import connect

JSON_LINES = "[log]\nformat = 'json'\n"


def _lines(server: ServerProcess) -> dict[str, dict[str, Any]]:
    """Returns the last line of each event."""
    return {line["event"]: line for line in map(json.loads, server.stderr)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("question", "ended", "left"),
    [(ask("/tool look {}", tools=[tool("look")]), 0, 1), (ask("/rate 50\n/words 100000"), 1, 0)],
    ids=["waits for a tool", "in the middle of an answer"],
)
async def test_a_stop_says_what_ran_and_what_it_leaves(
    tmp_path: Path, question: SendMessageRequest, ended: int, left: int
) -> None:
    """A turn that waits goes on at the next start, one in the middle of an answer ends and has its line."""
    async with server_process(tmp_path, JSON_LINES) as server:
        async with connect(server.address) as client:
            accepted = await client.messages.SendMessage(question)
            await client.messages.SendMessage(ask("next", session_id=accepted.session_id))
            async with watching(client, accepted.session_id, after_sequence=accepted.sequence) as watch:
                await watch.until_kind("tool_call_updated" if left else "part_delta")
        assert await server.terminate() == 0
        lines = _lines(server)
    stopping, stopped = lines["stopping"], lines["stopped"]
    assert (stopping["signal"], stopping["reason"]) == ("SIGTERM", "")
    assert (stopping["turns_running"], stopping["turns_waiting"], stopping["messages_queued"]) == (1, left, 1)
    assert (stopped["turns_ended"], stopped["turns_left"], stopped["messages_left"]) == (ended, left, 1)
    assert stopped["milliseconds"] >= 0
    assert ("turn" in lines) == bool(ended)
    if ended:
        assert (lines["turn"]["finish_reason"], lines["turn"]["failure"]) == ("interrupted", "SERVER_RESTARTED")


async def test_a_server_that_lost_its_database_says_why_it_stops(tmp_path: Path) -> None:
    """No signal came."""
    async with server_process(tmp_path, JSON_LINES) as server, connect(server.address) as client:
        (tmp_path / "turnwire.db-wal").unlink()
        await refused_unless_gone(client.messages.SendMessage(ask("hi")))
        assert await server.ended() == 1
        stopping = _lines(server)["stopping"]
    assert (stopping["signal"], stopping["reason"]) == ("", "STORAGE_CORRUPT")
