"""The time of day jumps by a year, ahead and back, while a server runs: nothing ends, expires or is lost by that."""

import asyncio
import sys
import time
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from opencode.message.message_pb2 import DISPOSITION_DUPLICATE
from opencode.question.question_pb2 import QUESTION_ACTION_ACCEPT, AnswerQuestionRequest, ListQuestionsRequest, Question
from opencode.tool.tool_pb2 import ToolCallState
from tests.support.clients.conversation import (
    answer_to,
    ask,
    messages_of,
    new_session,
    refused,
    session_of,
    talk,
    turn_ended,
    watching,
    words_of,
)
from tests.support.clients.tool_calls import LOOK, claim, pending_calls, result
from tests.support.oracles.sound import assert_sound
from tests.support.servers.mcp import asker, calls_of, ready
from tests.support.servers.moved_clock import MovedClock, library
from tests.support.servers.process import server_process
from tests.support.servers.running import Client, connect

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="libraries are preloaded in another way"),
    pytest.mark.slow,
    pytest.mark.skipif(library() is None, reason="no C compiler, so the clock cannot be moved"),
]

YEAR = timedelta(days=365)


async def _question(client: Client, session_id: str) -> Question:
    """Returns the only open question of a session, once it is there."""
    request = ListQuestionsRequest(session_id=session_id)
    while not (found := (await client.questions.ListQuestions(request)).questions):
        await asyncio.sleep(0.02)
    return found[0]


async def _holds(client: Client, session_id: str, call: ToolCallState) -> None:
    """Checks that somebody else holds a call."""
    refusal = await refused(client.tools.ClaimToolCall(claim(session_id, call.id, "another")))
    assert refusal.reason == "LEASE_HELD"


@pytest.mark.parametrize("jumps", [(YEAR, -YEAR), (-YEAR, YEAR)])
async def test_what_waits_goes_on_waiting(tmp_path: Path, jumps: tuple[timedelta, timedelta]) -> None:
    """Leases, questions, uploads, answers that stream, watches and names of requests, over two jumps."""
    clock = MovedClock(tmp_path)
    async with (
        server_process(tmp_path, asker(), clock.environ, forked=False) as server,
        connect(server.address) as client,
    ):
        await ready(client)
        held, [call] = await pending_calls(client, LOOK)
        lease = (await client.tools.ClaimToolCall(claim(held.session_id, call.id, "one"))).lease
        asking = await client.messages.SendMessage(ask('/tool ask.paint {"what": "door"}'))
        question = await _question(client, asking.session_id)
        upload = (await client.uploads.CreateUpload()).upload
        named = ask("once", await new_session(client), request_id=str(uuid4()))
        accepted = await client.messages.SendMessage(named)
        streaming = await client.messages.SendMessage(ask("/rate 40\n" + "word " * 60))
        async with watching(client, streaming.session_id, after_sequence=streaming.sequence) as watch:
            await watch.until_text()
            for jump in jumps:
                clock.move(jump)
                made = (await session_of(client, await new_session(client))).time.created / 1000
                assert abs(made - time.time() - jump.total_seconds()) < 3600
                await _holds(client, held.session_id, call)
                assert await _question(client, asking.session_id) == question
                await client.uploads.GetUpload(upload_id=upload.upload_id)
                assert (await client.messages.SendMessage(named)).disposition == DISPOSITION_DUPLICATE
                assert words_of(await answer_to(client, await talk(client, "still here"))) == "still here"
            await watch.until_turn_ended(streaming.turn_id)
        await client.tools.SubmitToolResult(result(held, call, "seen", lease_id=lease.lease_id))
        await turn_ended(client, held)
        content = '{"colour": "red"}'
        answer = AnswerQuestionRequest(
            session_id=asking.session_id,
            question_id=question.question_id,
            action=QUESTION_ACTION_ACCEPT,
            content_json=content,
        )
        await client.questions.AnswerQuestion(answer)
        await turn_ended(client, asking)
        assert (await calls_of(client, asking))[0].output == "door is red, 1 times"
        assert len(await messages_of(client, accepted.session_id)) == 2
    assert_sound(tmp_path / "turnwire.db")


async def test_a_restart_behind_what_is_stored(tmp_path: Path) -> None:
    """Messages keep their order, new sessions are listed, a turn that waited goes on."""
    clock = MovedClock(tmp_path)
    async with server_process(tmp_path, "", clock.environ, forked=False) as server, connect(server.address) as client:
        first = await talk(client, "one")
        waiting, [call] = await pending_calls(client, LOOK)
        lease = (await client.tools.ClaimToolCall(claim(waiting.session_id, call.id, "one"))).lease
        await server.kill()
    clock.move(-YEAR)
    async with server_process(tmp_path, "", clock.environ, forked=False) as server, connect(server.address) as client:
        await talk(client, "two", first.session_id)
        clock.move(YEAR)
        await talk(client, "three", first.session_id)
        found = [words_of(message) for message in await messages_of(client, first.session_id)]
        assert found == ["one", "one", "two", "two", "three", "three"]
        new = await new_session(client)
        listed = {one.id for one in (await client.sessions.ListSessions()).sessions}
        assert listed == {first.session_id, waiting.session_id, new}
        await client.tools.SubmitToolResult(result(waiting, call, "seen", lease_id=lease.lease_id))
        await turn_ended(client, waiting)
    assert_sound(tmp_path / "turnwire.db")
