"""Questions that tools of real MCP servers ask people, in every form of the protocol."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from opencode.message.content_pb2 import FINISH_REASON_ABORTED, FINISH_REASON_STOP
from opencode.message.message_pb2 import SendMessageResponse
from opencode.question.question_pb2 import (
    QUESTION_ACTION_ACCEPT,
    QUESTION_ACTION_CANCEL,
    QUESTION_ACTION_DECLINE,
    QUESTION_ACTION_EXPIRED,
    AnswerQuestionRequest,
    Question,
    QuestionAction,
)
from opencode.turn.turn_pb2 import TURN_STATUS_WAITING
from tests.support.clients.conversation import Watch, ask, new_session, refused, turn_ended, watching
from tests.support.servers.mcp import ASKER, asker, calls_of, http_server, mcp_client, own_port
from tests.support.servers.running import Client

PAINT = '/tool {}.paint {{"what": "the door"}}'
RED = '{"colour":"red","coats":2}'
FORMS = ("ask", "old", "web", "oldweb")
"""MCP servers: as a child and over HTTP, each with the newest version and with 2025-11-25."""


OLD = 'protocol = "handshake"'


@pytest.fixture(scope="module")
async def shared_client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    """A client of a server with the asking program as a child."""
    async with mcp_client(tmp_path_factory.mktemp("questions"), asker() + asker("old", OLD)) as connected:
        yield connected


@pytest.fixture(scope="module")
async def client_over_http(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    """A client of a server with the asking program over HTTP."""
    with own_port() as port:
        address = f'url = "http://127.0.0.1:{port}/mcp"'
        toml = f"[mcp.web]\n{address}\n[mcp.oldweb]\n{address}\n{OLD}\n"
        async with http_server(port, program=ASKER), mcp_client(tmp_path_factory.mktemp("http"), toml) as connected:
            yield connected


@pytest.fixture
def form() -> str:
    """The form of tests that have none of their own."""
    return "ask"


@pytest.fixture
def client_of_form(form: str, request: pytest.FixtureRequest) -> Client:
    """The client of the server that has the form."""
    found: Client = request.getfixturevalue("client_over_http" if form.endswith("web") else "shared_client")
    return found


@pytest.fixture
async def client(client_of_form: Client) -> AsyncIterator[Client]:
    """That client. Turns that a test leaves waiting for an answer end with the test."""
    yield client_of_form
    for question in (await client_of_form.questions.ListQuestions()).questions:
        await client_of_form.messages.AbortSession(session_id=question.session_id)


async def asked(
    client: Client, words: str, count: int = 1, session_id: str = ""
) -> tuple[SendMessageResponse, list[Question]]:
    """Sends a message and returns the questions that come of it."""
    accepted = await client.messages.SendMessage(ask(words, session_id))
    async with watching(client, accepted.session_id, after_sequence=accepted.sequence) as watch:
        await watch.until_kind("question_asked", count)
    return accepted, [event.question_asked.question for event in watch.events if event.HasField("question_asked")]


def newest(watch: Watch) -> Question:
    """Returns the question that was asked last."""
    return [event.question_asked.question for event in watch.events if event.HasField("question_asked")][-1]


def answer(question: Question, action: QuestionAction, content: str = "", **fields: str) -> AnswerQuestionRequest:
    """Returns an answer."""
    return AnswerQuestionRequest(
        session_id=question.session_id, question_id=question.question_id, action=action, content_json=content, **fields
    )


async def output_of(client: Client, accepted: SendMessageResponse) -> str:
    """Returns what the turn's only call said, once the turn has ended."""
    assert (await turn_ended(client, accepted)).turn_ended.turn.finish_reason == FINISH_REASON_STOP
    (call,) = await calls_of(client, accepted)
    return call.output or call.error


@pytest.mark.matrix
@pytest.mark.parametrize("form", FORMS)
async def test_a_form_is_asked_and_its_content_goes_to_the_tool(client: Client, form: str) -> None:
    """The question has who asks, what, and the schema; the turn waits for it, and goes on with the answer."""
    accepted, (question,) = await asked(client, PAINT.format(form))
    assert (question.source, question.prompt) == (form, "Which colour for the door?")
    assert '"colour"' in question.schema.schema_json
    assert (question.turn_id, question.metadata_json) == (accepted.turn_id, f'{{"tool":"{form}.paint"}}')
    assert question.expire_time.seconds - question.create_time.seconds == 540
    session = await client.sessions.GetSession(session_id=accepted.session_id)
    assert session.session.open_requests == 1
    turn = await client.turns.GetTurn(session_id=accepted.session_id, turn_id=accepted.turn_id)
    assert turn.turn.status == TURN_STATUS_WAITING
    listed = await client.questions.ListQuestions(session_id=accepted.session_id)
    assert list(listed.questions) == [question]
    confirmed = await client.questions.AnswerQuestion(answer(question, QUESTION_ACTION_ACCEPT, RED))
    async with watching(client, accepted.session_id, after_sequence=confirmed.sequence - 1) as watch:
        told = await watch.until_kind("question_answered")
    assert told.sequence == confirmed.sequence
    assert (told.question_answered.action, told.question_answered.tool_call_id) == (
        QUESTION_ACTION_ACCEPT,
        question.tool_call_id,
    )
    assert await output_of(client, accepted) == "the door is red, 2 times"
    assert not (await client.questions.ListQuestions()).questions


@pytest.mark.matrix
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("action", "word"), [(QUESTION_ACTION_DECLINE, "decline"), (QUESTION_ACTION_CANCEL, "cancel")])
async def test_the_tool_learns_that_nobody_filled_it_in(
    client: Client, form: str, action: QuestionAction, word: str
) -> None:
    """Declined and cancelled are told apart. The same again is confirmed, another answer is refused."""
    accepted, (question,) = await asked(client, PAINT.format(form))
    first = await client.questions.AnswerQuestion(answer(question, action, reason="no"))
    assert first.sequence > 0
    assert first.resume_token
    assert await output_of(client, accepted) == f"not painted: {word}"
    assert (await client.questions.AnswerQuestion(answer(question, action))).sequence == 0
    refusal = await refused(client.questions.AnswerQuestion(answer(question, QUESTION_ACTION_ACCEPT, RED)))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "QUESTION_ALREADY_ANSWERED")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "colour"),
        ('{"colour": 7}', "string"),
        ('{"colour": "red", "more": "x"}', "does not ask for"),
        ('{"colour": "red", "coats": 9}', "5"),
        ('["red"]', "not a JSON object"),
        ('{"colour": "' + "x" * 70_000 + '"}', "larger"),
    ],
)
async def test_content_must_fit_the_form(client: Client, content: str, why: str) -> None:
    """The error names the field, and the question stays open."""
    _, (question,) = await asked(client, PAINT.format("ask"))
    refusal = await refused(client.questions.AnswerQuestion(answer(question, QUESTION_ACTION_ACCEPT, content)))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST")
    assert "content_json" in refusal.message
    assert "argument" not in refusal.message and "tool" not in refusal.message  # the person has called no tool
    assert why in refusal.message
    assert (await client.questions.ListQuestions()).questions


async def test_of_two_answers_at_once_exactly_one_counts(client: Client) -> None:
    """However many clients accept at the same moment, with whatever content."""
    for form in ("ask", "old"):
        accepted, (question,) = await asked(client, PAINT.format(form))
        colours = [f"c{number}" for number in range(6)]
        outcomes = await asyncio.gather(
            *(
                client.questions.AnswerQuestion(answer(question, QUESTION_ACTION_ACCEPT, f'{{"colour":"{colour}"}}'))
                for colour in colours
            ),
            return_exceptions=True,
        )
        won = [colour for colour, outcome in zip(colours, outcomes, strict=True) if not isinstance(outcome, Exception)]
        assert len(won) == 1
        assert await output_of(client, accepted) == f"the door is {won[0]}, 1 times"


async def test_a_named_answer_is_carried_out_once(client: Client) -> None:
    """A retry is confirmed without content; another answer of that name is refused."""
    accepted, (question,) = await asked(client, PAINT.format("ask"))
    named = answer(question, QUESTION_ACTION_ACCEPT, RED, request_id=f"answer-{question.question_id}")
    assert (await client.questions.AnswerQuestion(named)).sequence > 0
    assert (await client.questions.AnswerQuestion(named)).sequence == 0
    other = answer(question, QUESTION_ACTION_DECLINE, request_id=named.request_id)
    assert (await refused(client.questions.AnswerQuestion(other))).reason == "REQUEST_ID_REUSED"
    assert await output_of(client, accepted) == "the door is red, 2 times"


async def test_unknown_questions_are_not_found(client: Client) -> None:
    """Also that of another session; bad requests name the field."""
    _, (question,) = await asked(client, PAINT.format("ask"))
    elsewhere = Question(session_id=await new_session(client), question_id=question.question_id)
    unknown = Question(session_id=question.session_id, question_id="que_none")
    for one in (elsewhere, unknown):
        refusal = await refused(client.questions.AnswerQuestion(answer(one, QUESTION_ACTION_DECLINE)))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "QUESTION_NOT_FOUND")
    for action in (0, QUESTION_ACTION_EXPIRED, 99):
        refusal = await refused(client.questions.AnswerQuestion(answer(question, action)))
        assert "action" in refusal.message
    refusal = await refused(client.questions.AnswerQuestion(answer(question, QUESTION_ACTION_DECLINE, "{}")))
    assert "content_json" in refusal.message


@pytest.mark.matrix
@pytest.mark.parametrize("form", FORMS)
async def test_an_abort_ends_the_question(client: Client, form: str) -> None:
    """At once, as cancelled, in an event before that of the turn's end; nothing answers it any more."""
    accepted, (question,) = await asked(client, PAINT.format(form))
    await client.messages.AbortSession(session_id=accepted.session_id)
    async with watching(client, accepted.session_id, after_sequence=accepted.sequence) as watch:
        ended = await watch.until_turn_ended(accepted.turn_id)
    assert ended.turn_ended.turn.finish_reason == FINISH_REASON_ABORTED
    (told,) = [event.question_answered for event in watch.events if event.HasField("question_answered")]
    assert (told.question_id, told.action) == (question.question_id, QUESTION_ACTION_CANCEL)
    refusal = await refused(client.questions.AnswerQuestion(answer(question, QUESTION_ACTION_ACCEPT, RED)))
    assert refusal.reason == "QUESTION_ALREADY_ANSWERED"


async def test_a_session_with_a_question_can_be_deleted(client: Client) -> None:
    """The question goes with it."""
    accepted, _ = await asked(client, PAINT.format("old"))
    await client.sessions.DeleteSession(session_id=accepted.session_id)
    assert not (await client.questions.ListQuestions()).questions


@pytest.mark.parametrize("session", [True, False])
async def test_a_watch_that_joins_later_gets_open_questions(client: Client, session: bool) -> None:
    """A watch of the session or of all has them as snapshots before caught_up."""
    accepted, (question,) = await asked(client, PAINT.format("ask"))
    async with watching(client, accepted.session_id if session else "") as watch:
        await watch.until_kind("caught_up")
    snapshots = [event.question_snapshot.question for event in watch.events if event.HasField("question_snapshot")]
    assert snapshots == [question]


@pytest.mark.matrix
@pytest.mark.parametrize("form", ["ask", "web", "oldweb"])
async def test_questions_of_calls_at_once_go_to_their_own_calls(client: Client, form: str) -> None:
    """Eight calls in one step and one in another session ask over one connection; each gets its own answer."""
    things = [f"thing {number}" for number in range(8)]
    step = "\n".join(f'/tool {form}.paint {{"what": "{thing}"}}' for thing in things)
    (accepted, questions), (other, (apart,)) = await asyncio.gather(
        asked(client, step, 8), asked(client, PAINT.format(form))
    )
    calls = {call.id: call for call in await calls_of(client, accepted)}
    for question in questions:
        thing = question.prompt.removeprefix("Which colour for ").removesuffix("?")
        assert thing in calls[question.tool_call_id].input_json
        colour = f'{{"colour":"{thing[-1]}"}}'
        await client.questions.AnswerQuestion(answer(question, QUESTION_ACTION_ACCEPT, colour))
    await client.questions.AnswerQuestion(answer(apart, QUESTION_ACTION_ACCEPT, RED))
    await turn_ended(client, accepted)
    painted = [call.output for call in await calls_of(client, accepted)]
    assert painted == [f"{thing} is {thing[-1]}, 1 times" for thing in things]
    assert await output_of(client, other) == "the door is red, 2 times"


async def test_a_question_that_no_call_can_be_said_to_ask_is_refused(client: Client) -> None:
    """A program of 2025-11-25 runs several calls: a guess could show it to another session."""
    accepted, (question,) = await asked(client, PAINT.format("old"))
    other = await client.messages.SendMessage(ask(PAINT.format("old")))
    assert "several calls run" in await output_of(client, other)
    await client.questions.AnswerQuestion(answer(question, QUESTION_ACTION_ACCEPT, RED))
    assert await output_of(client, accepted) == "the door is red, 2 times"


@pytest.mark.slow
@pytest.mark.parametrize("form", ["oldweb"])
async def test_other_calls_go_on_while_one_asks(client: Client, form: str) -> None:
    """Calls of the same server do, in the same step and in other sessions."""
    accepted, (question,) = await asked(client, PAINT.format(form) + '\n/tool oldweb.add {"a": 1, "b": 2}')
    other = await client.messages.SendMessage(ask('/tool oldweb.add {"a": 2, "b": 2}'))
    assert await output_of(client, other) == "the sum is 4"
    assert [call.output for call in await calls_of(client, accepted)] == ["", "the sum is 3"]
    await client.questions.AnswerQuestion(answer(question, QUESTION_ACTION_DECLINE))
    await turn_ended(client, accepted)


@pytest.mark.matrix
@pytest.mark.parametrize("form", ["old", "oldweb"])
async def test_a_link_is_asked_without_content(client: Client, form: str) -> None:
    """The tool learns only that the person agreed; content is refused."""
    accepted, (question,) = await asked(client, f"/tool {form}.connect {{}}")
    assert question.link.url == "https://example.com/connect/one"
    refusal = await refused(client.questions.AnswerQuestion(answer(question, QUESTION_ACTION_ACCEPT, "{}")))
    assert "must be empty" in refusal.message
    await client.questions.AnswerQuestion(answer(question, QUESTION_ACTION_ACCEPT))
    assert await output_of(client, accepted) == "link: accept"


@pytest.mark.matrix
@pytest.mark.parametrize("form", ["old", "oldweb"])
async def test_a_link_that_was_followed_needs_no_answer(client: Client, form: str) -> None:
    """The server says that it is done, and the question is accepted."""
    accepted, (question,) = await asked(client, f'/tool {form}.connect {{"link": "two"}}')
    await client.messages.SendMessage(ask(f'/tool {form}.followed {{"link": "two"}}'))
    async with watching(client, accepted.session_id, after_sequence=accepted.sequence) as watch:
        told = await watch.until_kind("question_answered")
    assert (told.question_answered.question_id, told.question_answered.action) == (
        question.question_id,
        QUESTION_ACTION_ACCEPT,
    )
    assert await output_of(client, accepted) == "link: accept"


@pytest.mark.matrix
@pytest.mark.parametrize("form", ["old", "oldweb"])
async def test_a_call_that_needs_a_link_runs_after_it(client: Client, form: str) -> None:
    """The person accepts, the server says that the link was followed, and the call is sent again."""
    accepted, (question,) = await asked(client, f'/tool {form}.needs {{"link": "{form}"}}')
    assert question.link.url == f"https://example.com/{form}"
    await client.questions.AnswerQuestion(answer(question, QUESTION_ACTION_ACCEPT))
    await client.messages.SendMessage(ask(f'/tool {form}.followed {{"link": "{form}"}}'))
    assert await output_of(client, accepted) == "runs"


async def test_a_call_whose_link_is_declined_fails(client: Client) -> None:
    """With what the server said."""
    accepted, (question,) = await asked(client, '/tool old.needs {"link": "never"}')
    await client.questions.AnswerQuestion(answer(question, QUESTION_ACTION_DECLINE))
    assert "elicitation required" in await output_of(client, accepted)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("nested", "neither text, number"),
        ("large", "larger than 16384"),
        ("long", "longer than 4096"),
        ("http", "for this machine"),
        ("file", "not https"),
    ],
)
async def test_what_cannot_be_asked_is_refused(client: Client, kind: str, why: str) -> None:
    """The call fails and says why; nobody is asked."""
    accepted = await client.messages.SendMessage(ask(f'/tool ask.odd {{"kind": "{kind}"}}'))
    assert why in await output_of(client, accepted)


@pytest.mark.slow
async def test_a_tool_that_asks_for_ever_is_stopped(client: Client) -> None:
    """After twenty questions its call fails."""
    accepted = await client.messages.SendMessage(ask("/tool ask.wild {}"))
    async with watching(client, accepted.session_id, after_sequence=accepted.sequence) as watch:
        for number in range(1, 21):
            await watch.until_kind("question_asked", number)
            question = newest(watch)
            await client.questions.AnswerQuestion(answer(question, QUESTION_ACTION_ACCEPT))
            await watch.until_kind("question_answered", number)
    assert "has asked 20 questions" in await output_of(client, accepted)


@pytest.mark.slow
async def test_a_flood_of_questions_is_cut(client: Client) -> None:
    """Eight of a thousand questions at once are open; they end with the turn."""
    accepted, questions = await asked(client, "/tool old.flood {}", 8)
    assert len(questions) == 8
    await client.messages.AbortSession(session_id=accepted.session_id)
    await turn_ended(client, accepted)
    assert not (await client.questions.ListQuestions()).questions


@pytest.mark.slow
async def test_calls_one_at_a_time_can_all_ask(tmp_path: Path) -> None:
    """With that setting a program of 2025-11-25 asks for each of its calls, one after the other."""
    async with mcp_client(tmp_path, asker("old", 'protocol = "handshake"', "one_call_at_a_time = true")) as client:
        step = "\n".join([PAINT.format("old")] * 3)
        accepted = await client.messages.SendMessage(ask(step))
        async with watching(client, accepted.session_id, after_sequence=accepted.sequence) as watch:
            for number in (1, 2, 3):
                await watch.until_kind("question_asked", number)
                question = newest(watch)
                await client.questions.AnswerQuestion(answer(question, QUESTION_ACTION_ACCEPT, RED))
                await watch.until_kind("question_answered", number)
        await turn_ended(client, accepted)
        assert [call.output for call in await calls_of(client, accepted)] == ["the door is red, 2 times"] * 3


@pytest.mark.slow
async def test_a_server_that_may_not_ask_is_told(tmp_path: Path) -> None:
    """Without questions in its settings it does not see the capability, and its tool fails at once."""
    async with mcp_client(tmp_path, asker("ask", "questions = false")) as client:
        accepted = await client.messages.SendMessage(ask(PAINT.format("ask")))
        assert "elicitation" in (await output_of(client, accepted)).lower()
