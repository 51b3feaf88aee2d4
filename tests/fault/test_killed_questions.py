"""Questions of tools after kill -9 and after a stop: none is lost, and none is open for ever."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from opencode.message.content_pb2 import FINISH_REASON_STOP
from opencode.message.message_pb2 import SendMessageResponse
from opencode.question.question_pb2 import (
    QUESTION_ACTION_ACCEPT,
    QUESTION_ACTION_CANCEL,
    QUESTION_ACTION_EXPIRED,
    AnswerQuestionRequest,
    Question,
)
from tests.support.clients.conversation import ask, turn_ended, watching
from tests.support.servers.mcp import ENVIRON, asker, calls_of, ready
from tests.support.servers.process import server_process
from tests.support.servers.running import Client, connect

pytestmark = pytest.mark.slow

PAINT = '/tool ask.paint {"what": "the door"}'


async def asked(client: Client, words: str, count: int = 1) -> tuple[SendMessageResponse, list[Question]]:
    """Sends a message and returns the questions that come of it."""
    await ready(client)
    accepted = await client.messages.SendMessage(ask(words))
    async with watching(client, accepted.session_id, after_sequence=accepted.sequence) as watch:
        await watch.until_kind("question_asked", count)
    return accepted, [event.question_asked.question for event in watch.events if event.HasField("question_asked")]


def accept(question: Question, colour: str) -> AnswerQuestionRequest:
    """Returns an answer."""
    return AnswerQuestionRequest(
        session_id=question.session_id,
        question_id=question.question_id,
        action=QUESTION_ACTION_ACCEPT,
        content_json=f'{{"colour":"{colour}"}}',
    )


async def test_a_question_of_an_old_protocol_ends_with_its_call(tmp_path: Path) -> None:
    """After a kill the call is closed as interrupted, and the question as cancelled; the turn goes on."""
    toml = asker("ask", 'protocol = "handshake"')
    async with server_process(tmp_path, toml, ENVIRON) as server:
        async with connect(server.address) as client:
            accepted, (question,) = await asked(client, PAINT)
        await server.kill()
    async with server_process(tmp_path, toml, ENVIRON) as server, connect(server.address) as client:
        async with watching(client, accepted.session_id, after_sequence=accepted.sequence) as watch:
            told = (await watch.until_kind("question_answered")).question_answered
            ended = await watch.until_turn_ended(accepted.turn_id)
        assert (told.question_id, told.action) == (question.question_id, QUESTION_ACTION_CANCEL)
        assert ended.turn_ended.turn.finish_reason == FINISH_REASON_STOP
        (call,) = await calls_of(client, accepted)
        assert "restarted while the tool ran" in call.error
        assert not (await client.questions.ListQuestions()).questions


async def test_a_question_expires_while_no_server_runs(tmp_path: Path) -> None:
    """The next start says so at once, and the call goes on."""
    toml = "[limits]\nquestion_timeout_seconds = 1.0\n" + asker()
    async with server_process(tmp_path, toml, ENVIRON) as server:
        async with connect(server.address) as client:
            accepted, _ = await asked(client, PAINT)
        await server.kill()
    await asyncio.sleep(1)
    async with server_process(tmp_path, toml, ENVIRON) as server, connect(server.address) as client:
        async with watching(client, accepted.session_id, after_sequence=accepted.sequence) as watch:
            told = (await watch.until_kind("question_answered")).question_answered
        assert told.action == QUESTION_ACTION_EXPIRED
        await turn_ended(client, accepted)
        (call,) = await calls_of(client, accepted)
        assert call.output == "not painted: cancel"


async def test_what_was_filled_in_is_nowhere_but_in_the_call(tmp_path: Path) -> None:
    """Neither the log nor the rows of questions and events have it, once its call has gone on."""
    async with server_process(tmp_path, asker(), ENVIRON) as server:
        async with connect(server.address) as client:
            accepted, (question,) = await asked(client, PAINT)
            await client.questions.AnswerQuestion(accept(question, "x" * 10 + "secret"))
            await turn_ended(client, accepted)
        assert "secret" not in "\n".join(server.stderr)
        await server.terminate()
    with closing(sqlite3.connect(tmp_path / "turnwire.db")) as db:
        rows = db.execute("SELECT body, hold FROM questions").fetchall()
    assert [hold for _, hold in rows] == [None]
    assert "secret" not in rows[0][0]
