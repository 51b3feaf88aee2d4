"""The client against a real server: sending, answers, watches, errors."""

import asyncio
from datetime import timedelta
from pathlib import Path

import grpc
import pytest

from opencode.message.content_pb2 import (
    FINISH_REASON_ABORTED,
    MESSAGE_STATUS_COMPLETE,
    MESSAGE_TYPE_ASSISTANT,
    MESSAGE_TYPE_TOOL_RESULT,
    ModelRun,
    TokenUsage,
    ToolResultContent,
)
from opencode.message.message_pb2 import (
    DISPOSITION_DUPLICATE,
    DISPOSITION_STARTED,
    AppendedToolCall,
    MessagePart,
)
from opencode.session.session_pb2 import (
    SESSION_STATUS_IDLE,
    CreateSessionRequest,
    DeleteSessionRequest,
    ForkSessionRequest,
    GetSessionRequest,
    ListSessionsRequest,
)
from opencode.session.session_pb2_grpc import SessionServiceStub
from opencode.turn.turn_pb2 import BUSY_POLICY_REJECT, BUSY_POLICY_STEER
from tests.support.servers.process import ServerProcess, server_process
from tests.support.servers.running import running_server
from turnwire_client import (
    Client,
    ClientClosedError,
    Conversation,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    TurnFailedError,
    UnauthenticatedError,
    UnavailableError,
    Update,
)


async def until_idle(client: Client, session_id: str) -> Conversation:
    """Returns the conversation once nothing runs or waits."""
    async with client.watch(session_id) as updates:
        async for update in updates:
            held = update.conversation
            if held.status == SESSION_STATUS_IDLE and not held.waiting_ids:
                return held
    raise AssertionError("the watch ended")


async def test_an_answer_comes_in_pieces(client: Client) -> None:
    """Every character once, whatever its size in bytes."""
    pieces = [piece async for piece in client.ask("/rate 10\néén twee 世界 🌍")]
    assert "".join(pieces) == "één twee 世界 🌍"
    assert len(pieces) > 1


async def test_an_answer_can_be_awaited(client: Client) -> None:
    """It has all of the text, and the turn with its end."""
    answer = client.ask("Hello")
    assert await answer == "Hello"
    assert answer.accepted is not None
    assert answer.turn is not None
    assert answer.turn.turn_id == answer.accepted.turn_id


async def test_texts_of_several_steps_are_divided(client: Client) -> None:
    """Text before a tool call and text after it are two paragraphs."""
    assert await client.ask("Before.\n/tool missing {}\n/step\nAfter.") == "Before.\n\nAfter."


async def test_a_turn_that_fails_raises_with_what_came(client: Client) -> None:
    """The failure has its reason; the text so far is kept."""
    answer = client.ask("/error rate_limited 2\none two three four")
    with pytest.raises(TurnFailedError) as caught:
        await answer
    assert caught.value.reason.startswith("PROVIDER_")
    assert str(caught.value).startswith(f"{caught.value.reason}: ")
    assert answer.text.split() == ["one", "two"]


async def test_an_aborted_answer_ends_without_an_error(client: Client) -> None:
    """An abort is an outcome."""
    answer = client.ask("/rate 5\n/words 100")
    first = await anext(answer)
    assert answer.accepted is not None
    await client.abort(answer.accepted.session_id, answer.accepted.turn_id)
    rest = await answer
    assert rest.startswith(first)
    assert answer.turn is not None
    assert answer.turn.finish_reason == FINISH_REASON_ABORTED


async def test_a_message_that_joins_a_turn_is_answered_by_it(client: Client) -> None:
    """The answer of a message with STEER is the rest of the turn that it joins."""
    first = client.ask("/rate 20\n/words 40\n/tool missing {}\n/step\nDone.")
    await anext(first)
    assert first.accepted is not None
    second = client.ask("And this.", first.accepted.session_id, busy_policy=BUSY_POLICY_STEER)
    assert "Done." in await first or "And this." in await second
    await second
    assert second.turn is not None


async def test_a_named_message_is_sent_once(client: Client) -> None:
    """The same name gives the first answer."""
    first = await client.send("Hello", request_id="once-and-only")
    again = await client.send("Hello", request_id="once-and-only")
    assert (first.disposition, again.disposition) == (DISPOSITION_STARTED, DISPOSITION_DUPLICATE)
    assert (first.session_id, first.message_id) == (again.session_id, again.message_id)


async def test_a_watch_begins_with_everything(client: Client) -> None:
    """The first update has the whole conversation, with status and queue."""
    accepted = await client.send("Hello")
    await until_idle(client, accepted.session_id)
    async with client.watch(accepted.session_id) as updates:
        update = await anext(updates)
    assert update.kind == "read"
    assert update.event is None
    assert [message.parts[0].text.text for message in update.conversation.messages] == ["Hello", "Hello"]
    assert update.conversation.status == SESSION_STATUS_IDLE
    assert update.conversation.session is not None


async def test_a_watch_tells_each_event_once(client: Client) -> None:
    """From the place of a sent message on, in growing order, with the conversation as it is then."""
    accepted = await client.send("/rate 100\n/words 20")
    kinds, sequences = [], []
    async with client.watch(accepted.session_id, resume_token=accepted.resume_token) as updates:
        async for update in updates:
            kinds.append(update.kind)
            assert update.event is not None
            sequences += [update.event.sequence] if update.event.sequence else []
            if update.kind == "turn_ended":
                break
    assert kinds[0] == "session_created"
    assert kinds.count("message_added") == 2
    assert sequences == sorted(set(sequences))
    held = update.conversation
    assert held.ended_turns.keys() == {accepted.turn_id}
    assert len(held.text(held.messages[-1].message_id).split()) == 20


@pytest.mark.slow
async def test_a_watch_goes_on_where_a_conversation_ends(client: Client) -> None:
    """A batch that was left half way comes again, and nothing of it counts twice."""
    accepted = await client.send("/rate 200\n/words 40")
    held = Conversation(accepted.session_id)
    held.resume_token = accepted.resume_token
    seen = []
    while not held.ended_turns:
        async with client.watch(accepted.session_id, conversation=held) as updates:
            seen.append(await anext(updates))
    durable = [update.event.sequence for update in seen if update.event is not None and update.event.sequence]
    assert durable == sorted(set(durable))
    assert held.messages == (await until_idle(client, accepted.session_id)).messages


async def test_an_agent_of_ones_own_is_stored_and_gone_on_from(client: Client) -> None:
    """Its answers, with what it says of them; a result brings the server's turn about."""
    sessions = client.stub(SessionServiceStub)
    session_id = (await client.call(sessions.CreateSession, CreateSessionRequest())).id
    await client.append(session_id, "What is there?", sender="ada", metadata={"n": 1})
    call = MessagePart(tool_call=AppendedToolCall(name="look", call_id="c1"))
    known = {"model_run": ModelRun(model_requested="m"), "usage": TokenUsage(output_tokens=3)}
    stored = await client.append(
        session_id, ["I look.", call], type=MESSAGE_TYPE_ASSISTANT, request_id=f"{session_id} 1", **known
    )
    again = await client.append(
        session_id, ["I look.", call], type=MESSAGE_TYPE_ASSISTANT, request_id=f"{session_id} 1", **known
    )
    assert again.message_id == stored.message_id
    with pytest.raises(FailedPreconditionError) as caught:
        await client.start(session_id, stored.message_id)
    assert caught.value.reason == "TOOL_CALLS_OPEN"
    result = MessagePart(tool_result=ToolResultContent(call_id="c1", output="a cat"))
    at = await client.append(session_id, result, type=MESSAGE_TYPE_TOOL_RESULT)
    started = await client.start(session_id, at.message_id, model="offline/echo", system="be brief")
    async with client.watch(session_id, resume_token=started.resume_token) as updates:
        async for update in updates:
            if update.kind == "turn_ended":
                break
    asked, answer, _, reply = await client.messages(session_id)
    assert (asked.sender, asked.metadata_json) == ("ada", '{"n": 1}')
    assert (answer.model_run.is_reported, answer.usage.output_tokens) == (True, 3)
    assert answer.parts[1].tool_use.output == "a cat"
    assert (reply.turn_id, reply.model_run.is_reported) == (started.turn.turn_id, False)


async def test_long_conversations_are_read_in_pages(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """In their order, whatever the size of a page."""
    monkeypatch.setattr("turnwire_client.watching.PAGE_SIZE", 2)
    session_id = (await client.send("0")).session_id
    for number in range(1, 4):
        await client.ask(str(number), session_id)
    texts = [message.parts[0].text.text for message in await client.messages(session_id)]
    assert texts == [text for number in range(4) for text in [str(number)] * 2]


async def test_a_deleted_session_ends_its_watch(client: Client) -> None:
    """After an update that says so."""
    accepted = await client.send("Hello")
    await until_idle(client, accepted.session_id)
    last: Update | None = None
    async with client.watch(accepted.session_id) as updates:
        await anext(updates)
        await client.call(
            client.stub(SessionServiceStub).DeleteSession, DeleteSessionRequest(session_id=accepted.session_id)
        )
        async for update in updates:
            last = update
    assert last is not None
    assert last.conversation.deleted
    assert last.conversation.messages == []


async def test_a_watch_of_no_session_is_refused(client: Client) -> None:
    """With the error of the protocol."""
    with pytest.raises(NotFoundError) as caught:
        await anext(client.watch("ses_nobody"))
    assert caught.value.reason == "SESSION_NOT_FOUND"


async def test_errors_name_every_field(client: Client) -> None:
    """Code, reason, fields and metadata are there."""
    with pytest.raises(InvalidArgumentError) as caught:
        await client.send("", sender="x" * 10_000)
    assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.reason == "INVALID_REQUEST"
    assert {violation.field for violation in caught.value.violations} >= {"parts[0].text.text"}


async def test_a_busy_session_can_refuse(client: Client) -> None:
    """The reason says what would have to end first."""
    accepted = await client.send("/rate 1\n/words 100")
    with pytest.raises(FailedPreconditionError) as caught:
        await client.send("Me too", accepted.session_id, busy_policy=BUSY_POLICY_REJECT)
    assert caught.value.reason == "TURN_IN_PROGRESS"
    await client.abort(accepted.session_id)


async def test_any_method_can_be_called(client: Client) -> None:
    """A request that can have a name gets one; an answer comes typed."""
    sessions = client.stub(SessionServiceStub)
    created = await client.call(sessions.CreateSession, CreateSessionRequest(title="Mine"))
    copied = await client.call(sessions.ForkSession, ForkSessionRequest(session_id=created.id))
    found = await client.call(sessions.GetSession, GetSessionRequest(session_id=copied.session.id))
    assert found.session.title == "Mine"


async def test_sessions_are_listed_copied_and_taken_back(client: Client) -> None:
    """Without a request of the contract; lists of several pages are read to their end, and with a filter."""
    accepted = await client.send("One")
    await client.ask("Two", accepted.session_id)
    two = (await client.messages(accepted.session_id))[2].message_id
    whole, part = await client.fork(accepted.session_id), await client.fork(accepted.session_id, accepted.message_id)
    assert [len(await client.messages(copy.id)) for copy in (whole, part)] == [4, 1]
    assert (await client.revert(accepted.session_id, two)).hidden_messages == 2
    assert len(await client.messages(accepted.session_id)) == 2
    listed = [session.id async for session in client.sessions(ListSessionsRequest(page_size=1))]
    assert listed[:3] == [accepted.session_id, part.id, whole.id]
    assert [session async for session in client.sessions(ListSessionsRequest(archived=True))] == []


async def test_the_client_knows_the_server(client: Client) -> None:
    """It asked at the beginning."""
    assert "watch.resume" in client.server.features


async def test_nobody_listens() -> None:
    """The first call fails soon, and says that no server answers."""
    with pytest.raises(UnavailableError):
        await Client.connect("127.0.0.1:1", connect_seconds=0).open()


async def test_a_closed_client_says_so(address: str) -> None:
    """Before it is open as well."""
    client = Client.connect(address)
    with pytest.raises(ClientClosedError):
        await client.send("Hello")
    await client.open()
    await client.close()
    await client.close()
    with pytest.raises(ClientClosedError):
        await client.send("Hello")


@pytest.mark.parametrize(
    ("address", "options", "words"),
    [
        ("", {}, "HOST:PORT"),
        ("http://127.0.0.1:50051", {}, "without a scheme"),
        ("example.com:443", {"token": "secret"}, "over TLS only"),
        ("127.0.0.1:1", {"token": "two\nlines"}, "no token has"),
    ],
)
def test_connections_that_cannot_work_are_refused(address: str, options: dict[str, str], words: str) -> None:
    """At once, and without the token in the text."""
    with pytest.raises(ValueError, match=words) as caught:
        Client.connect(address, **options)  # type: ignore[arg-type]
    assert "secret" not in str(caught.value)


async def test_a_token_is_asked_for_again_when_it_is_refused(tmp_path: Path) -> None:
    """A function gives the next one; a text that is refused stays refused."""
    async with running_server(tmp_path, '[auth]\nmethods = ["token"]\n') as server:
        asked = []

        def token() -> str:
            asked.append("")
            return f"tw_wrong{len(asked)}"

        with pytest.raises(UnauthenticatedError):
            async with Client.connect(server.address, token=token) as client:
                await client.send("Hello")
        assert len(asked) == 2
        with pytest.raises(UnauthenticatedError):
            async with Client.connect(server.address, token="tw_wrong") as client:
                await client.send("Hello")


@pytest.mark.slow
async def test_a_watch_goes_on_over_a_killed_server(tmp_path: Path) -> None:
    """It says once that the connection is lost, and then what happened meanwhile; no text twice, none missing."""
    async with server_process(tmp_path) as first, Client.connect(first.address, retry_seconds=30) as client:
        accepted = await client.send("/rate 20\n/words 40")
        kinds: list[str] = []
        second: ServerProcess | None = None
        try:
            async with client.watch(accepted.session_id) as updates:
                async for update in updates:
                    kinds.append(update.kind)
                    if update.kind == "part_delta" and second is None:
                        await first.kill()
                        second = await ServerProcess.start(tmp_path, listen=first.address)
                    if update.kind == "turn_ended":
                        break
            assert kinds.count("lost") == 1
            assert [m.parts for m in update.conversation.messages] == [
                m.parts for m in await client.messages(accepted.session_id)
            ]
        finally:
            if second is not None:
                await second.kill()


@pytest.mark.slow
async def test_a_message_is_sent_while_the_server_is_away(tmp_path: Path) -> None:
    """It is tried again under its name until the server is back, and stored once."""
    async with server_process(tmp_path) as first, Client.connect(first.address, retry_seconds=30) as client:
        session_id = (await client.send("One")).session_id
        await until_idle(client, session_id)
        await first.kill()
        sending = asyncio.create_task(client.send("Two", session_id))
        second = await ServerProcess.start(tmp_path, listen=first.address)
        try:
            await sending
            held = await until_idle(client, session_id)
            assert [m.parts[0].text.text for m in held.messages if m.type != MESSAGE_TYPE_ASSISTANT] == ["One", "Two"]
            assert {m.status for m in held.messages} == {MESSAGE_STATUS_COMPLETE}
        finally:
            await second.kill()


async def test_a_cancelled_call_is_not_tried_again(tmp_path: Path) -> None:
    """Cancellation ends the waiting between attempts too."""
    async with server_process(tmp_path) as server, Client.connect(server.address, retry_seconds=3600) as client:
        await server.kill()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(timedelta(seconds=0.3).total_seconds()):
                await client.send("Hello")
