"""Messages are taken back and brought back: they are hidden from models and lists, and nothing is lost."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opencode.event.session_event_pb2 import (
    CONVERSATION_CHANGE_CLEARED,
    CONVERSATION_CHANGE_RESTORED,
    CONVERSATION_CHANGE_REVERTED,
    EVENT_KIND_TURN_ENDED,
)
from opencode.file.file_pb2 import DownloadFileRequest
from opencode.message.content_pb2 import MESSAGE_TYPE_USER
from opencode.message.message_pb2 import (
    AbortSessionRequest,
    AppendMessageRequest,
    ExplainContextRequest,
    GetMessageRequest,
    GetMessagesRequest,
    ListMessagesRequest,
    SendMessageRequest,
)
from opencode.session.session_pb2 import (
    ClearSessionRequest,
    ForkSessionRequest,
    GetSessionRequest,
    RestoreSessionRequest,
    RevertSessionRequest,
)
from opencode.turn.turn_service_pb2 import StartTurnRequest
from tests.support.clients.conversation import (
    FOREVER,
    ask,
    displayed,
    file,
    messages_of,
    new_session,
    refusal_of,
    refused,
    talk,
    text,
    turn_ended,
    watching,
    words_of,
)
from tests.support.clients.rereading import Reader
from tests.support.oracles.fold import SessionFold, comparable
from tests.support.servers.running import Client, connect, running_server


async def clear(client: Client, session_id: str, **fields: Any) -> Any:
    """Hides everything."""
    return await client.sessions.ClearSession(ClearSessionRequest(session_id=session_id, **fields))


async def revert(client: Client, session_id: str, message_id: str, **fields: Any) -> Any:
    """Hides the end of a conversation."""
    request = RevertSessionRequest(session_id=session_id, before_message_id=message_id, **fields)
    return await client.sessions.RevertSession(request)


async def restore(client: Client, session_id: str, **fields: Any) -> Any:
    """Brings back what was hidden last."""
    return await client.sessions.RestoreSession(RestoreSessionRequest(session_id=session_id, **fields))


async def append(client: Client, session_id: str, words: str) -> str:
    """Stores a message without a turn and returns its id."""
    request = AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_USER, parts=[text(words)])
    return (await client.messages.AppendMessage(request)).message_id


async def words(client: Client, session_id: str) -> list[str]:
    """Returns what the listed messages say."""
    return [words_of(message) for message in await messages_of(client, session_id)]


async def explained(client: Client, session_id: str) -> str:
    """Returns what a model would be sent."""
    request = ExplainContextRequest(session_id=session_id, parts=[text("and now?")])
    return (await client.messages.ExplainContext(request)).request_json


async def test_a_cleared_session_goes_on_empty(client: Client) -> None:
    """No list has the messages and no model is sent them; the next message is the first one."""
    session_id = await new_session(client, title="Plans")
    request = SendMessageRequest(
        session_id=session_id, parts=[text("hello"), file(url="data:text/plain;base64,aGVsbG8=", filename="a.txt")]
    )
    await turn_ended(client, await client.messages.SendMessage(request))
    before = await messages_of(client, session_id)
    cleared = await clear(client, session_id)
    assert cleared.hidden_messages == 2
    assert await messages_of(client, session_id) == []
    assert await displayed(client, session_id) == []
    paged = await client.messages.GetMessages(GetMessagesRequest(session_id=session_id, page_size=5))
    assert not paged.messages
    assert "hello" not in await explained(client, session_id)
    await talk(client, "next", session_id)
    after = await messages_of(client, session_id)
    assert [words_of(message) for message in after] == ["next", "next"]
    assert after[0].previous_message_id == ""
    for message in before:
        found = await client.messages.GetMessage(
            GetMessageRequest(session_id=session_id, message_id=message.message_id)
        )
        assert found.message == message
    sha256 = before[0].parts[1].file.sha256
    pieces = client.files.DownloadFile(DownloadFileRequest(session_id=session_id, sha256=sha256))
    assert b"".join([piece.data async for piece in pieces]) == b"hello"


async def test_a_reverted_message_is_asked_again(client: Client) -> None:
    """The message and all behind it are hidden; the new one is an alternative of it."""
    session_id = (await talk(client, "one")).session_id
    await talk(client, "two", session_id)
    before = await messages_of(client, session_id)
    assert (await revert(client, session_id, before[2].message_id)).hidden_messages == 2
    assert await words(client, session_id) == ["one", "one"]
    await talk(client, "three", session_id)
    after = await messages_of(client, session_id)
    assert [words_of(message) for message in after] == ["one", "one", "three", "three"]
    assert after[2].previous_message_id == before[2].previous_message_id == before[1].message_id
    assert "two" not in await explained(client, session_id)


async def test_restore_brings_everything_back(client: Client) -> None:
    """As it was, in its place, one step after the other; what was added meanwhile comes behind it."""
    session_id = (await talk(client, "one")).session_id
    await talk(client, "two", session_id)
    before = await messages_of(client, session_id)
    shown = await displayed(client, session_id)
    sent = await explained(client, session_id)
    await revert(client, session_id, before[3].message_id)
    await clear(client, session_id)
    assert (await restore(client, session_id)).restored_messages == 3
    assert await messages_of(client, session_id) == before[:3]
    assert (await restore(client, session_id)).restored_messages == 1
    assert await messages_of(client, session_id) == before
    assert await displayed(client, session_id) == shown
    assert await explained(client, session_id) == sent
    await revert(client, session_id, before[2].message_id)
    note = await append(client, session_id, "a note")
    await restore(client, session_id)
    after = await messages_of(client, session_id)
    assert after[:4] == before
    assert (after[4].message_id, after[4].previous_message_id) == (note, before[3].message_id)
    found = await refused(restore(client, session_id))
    assert (found.code, found.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "NOTHING_TO_RESTORE")


async def test_a_session_tells_what_a_restore_would_bring_back(client: Client) -> None:
    """The ids of the messages, in their order: of the last call that hid any, and none once a turn begins."""

    async def restorable() -> list[str]:
        found = await client.sessions.GetSession(GetSessionRequest(session_id=session_id))
        return list(found.restorable_message_ids)

    session_id = await new_session(client)
    for said in ("one", "two", "three"):
        await talk(client, said, session_id)
    ids = [message.message_id for message in await messages_of(client, session_id)]
    assert await restorable() == []
    await revert(client, session_id, ids[4])
    assert await restorable() == ids[4:]
    await clear(client, session_id)
    assert await restorable() == ids[:4]
    await restore(client, session_id)
    assert await restorable() == ids[4:]
    await talk(client, "four", session_id)
    assert await restorable() == []


async def test_a_turn_ends_what_can_be_restored(client: Client) -> None:
    """What was hidden before it stays hidden; what is hidden after it can come back."""
    session_id = (await talk(client, "one")).session_id
    await clear(client, session_id)
    await talk(client, "two", session_id)
    assert (await refused(restore(client, session_id))).reason == "NOTHING_TO_RESTORE"
    await clear(client, session_id)
    await restore(client, session_id)
    assert await words(client, session_id) == ["two", "two"]
    assert (await refused(restore(client, session_id))).reason == "NOTHING_TO_RESTORE"


async def test_a_running_turn_is_not_disturbed(client: Client) -> None:
    """All three are refused, and nothing changes; afterwards they work, and the queue has gone on."""
    session_id = (await talk(client, "one")).session_id
    first = (await messages_of(client, session_id))[0].message_id
    running = await client.messages.SendMessage(ask(FOREVER, session_id))
    waiting = await client.messages.SendMessage(ask("next", session_id))
    for call in (clear(client, session_id), revert(client, session_id, first), restore(client, session_id)):
        found = await refused(call)
        assert (found.code, found.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "TURN_IN_PROGRESS")
    await client.messages.AbortSession(
        AbortSessionRequest(session_id=session_id, expected_turn_id=running.turn_id, keep_queue=True)
    )
    await turn_ended(client, waiting)
    await clear(client, session_id)
    assert await words(client, session_id) == []


async def test_unknown_messages_are_refused(client: Client) -> None:
    """Of another session, hidden, or never stored; and a request without what it needs."""
    session_id = (await talk(client, "one")).session_id
    hidden = (await messages_of(client, session_id))[0].message_id
    other = (await talk(client, "other")).message_id
    await clear(client, session_id)
    for message_id in (other, hidden, "msg_unknown"):
        found = await refused(revert(client, session_id, message_id))
        assert (found.code, found.reason) == (grpc.StatusCode.NOT_FOUND, "MESSAGE_NOT_FOUND")
    assert (await refused(revert(client, session_id, ""))).fields == ["before_message_id"]
    assert (await refused(clear(client, "ses_unknown"))).reason == "SESSION_NOT_FOUND"
    fork = ForkSessionRequest(session_id=session_id, through_message_id=hidden)
    assert (await refused(client.sessions.ForkSession(fork))).reason == "MESSAGE_NOT_FOUND"


async def test_named_requests_are_carried_out_once(client: Client) -> None:
    """A retry hides nothing more."""
    session_id = (await talk(client, "one")).session_id
    first = await clear(client, session_id, request_id="rewinds-clear")
    await talk(client, "two", session_id)
    again = await clear(client, session_id, request_id="rewinds-clear")
    assert (again.sequence, again.hidden_messages, first.hidden_messages) == (first.sequence, 0, 2)
    assert await words(client, session_id) == ["two", "two"]
    found = await refused(restore(client, session_id, request_id="rewinds-clear"))
    assert found.reason == "REQUEST_ID_REUSED"


async def test_watchers_are_told(client: Client) -> None:
    """Each change is one event, which passes filters; folded, it leaves what ListMessages answers."""
    session_id = (await talk(client, "one")).session_id
    await talk(client, "two", session_id)
    before = await messages_of(client, session_id)
    fold, filtered = SessionFold(session_id), []
    async with (
        watching(client, session_id, fold, after_sequence=0) as watch,
        watching(client, session_id, kinds=[EVENT_KIND_TURN_ENDED]) as narrow,
    ):
        await narrow.until_kind("caught_up")
        reverted = await revert(client, session_id, before[1].message_id)
        event = await watch.until_kind("conversation_changed")
        assert event.sequence == reverted.sequence + 1
        changed = event.conversation_changed
        assert (changed.change, changed.reread) == (CONVERSATION_CHANGE_REVERTED, False)
        assert changed.kept_through_message_id == before[0].message_id
        assert comparable(fold.listed()) == comparable(await messages_of(client, session_id))
        await restore(client, session_id)
        changed = (await watch.until_kind("conversation_changed", 2)).conversation_changed
        assert (changed.change, changed.reread) == (CONVERSATION_CHANGE_RESTORED, True)
        assert changed.kept_through_message_id == before[0].message_id
        await clear(client, session_id)
        changed = (await watch.until_kind("conversation_changed", 3)).conversation_changed
        assert changed.change == CONVERSATION_CHANGE_CLEARED
        assert not changed.HasField("kept_through_message_id")
        assert fold.listed() == []
        await narrow.until_kind("conversation_changed", 3)
        filtered = [event.WhichOneof("kind") for event in narrow.events if event.sequence]
    assert filtered == ["conversation_changed"] * 3
    async with watching(client, session_id, resume_token=reverted.resume_token) as watch:
        await watch.until_kind("conversation_changed", 3)


steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(("append", "talk", "clear", "restore", "restore", "fork")), st.just(0)),
        st.tuples(st.sampled_from(("revert", "start", "start")), st.integers(0, 5)),
    ),
    min_size=3,
    max_size=10,
)


async def _carry_out(client: Client, session_id: str, step: str, place: int) -> str:
    """Does one thing and returns the session in which to go on."""
    listed = await messages_of(client, session_id)
    if step == "append":
        await append(client, session_id, f"note {len(listed)}")
    elif step == "talk":
        await talk(client, f"question {len(listed)}", session_id)
    elif step == "clear":
        await clear(client, session_id)
    elif step == "revert" and place < len(listed):
        await revert(client, session_id, listed[place].message_id)
    elif step == "start" and place < len(listed) and listed[place].type == MESSAGE_TYPE_USER:
        await _start(client, session_id, listed[place].message_id)
    elif step == "fork":
        made = await client.sessions.ForkSession(ForkSessionRequest(session_id=session_id))
        copied = await messages_of(client, made.session.id)
        assert [words_of(message) for message in copied] == [words_of(message) for message in listed]
        return str(made.session.id)
    elif step == "restore":
        try:
            await restore(client, session_id)
        except grpc.aio.AioRpcError as error:
            assert error.code() == grpc.StatusCode.FAILED_PRECONDITION
    return session_id


async def _start(client: Client, session_id: str, message_id: str) -> None:
    """Has a message answered, unless it is."""
    request = StartTurnRequest(session_id=session_id, user_message_id=message_id)
    try:
        started = await client.turns.StartTurn(request)
    except grpc.aio.AioRpcError as error:
        assert refusal_of(error).reason == "TURN_EXISTS"
        return
    async with watching(client, session_id, resume_token=started.resume_token) as watch:
        await watch.until_turn_ended(started.turn.turn_id)


async def _head(client: Client, session_id: str) -> int:
    answer = await client.messages.ListMessages(ListMessagesRequest(session_id=session_id, page_size=1))
    return int(answer.sequence)


@pytest.fixture(scope="module")
async def histories(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    """A client of a server for all random histories."""
    async with running_server(tmp_path_factory.mktemp("h")) as server, connect(server.address) as connected:
        yield connected


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(history=steps)
async def test_whatever_happens_the_fold_is_the_list(histories: Client, history: list[tuple[str, int]]) -> None:
    """Live and replayed, after every sequence of copies, rewinds and turns; each message names the one before it."""
    client = histories
    session_id = (await talk(client, "start")).session_id
    for step, place in history:
        session_id = await _carry_out(client, session_id, step, place)
        listed = await messages_of(client, session_id)
        assert [m.previous_message_id for m in listed] == ["", *(m.message_id for m in listed)][: len(listed)]
        reader = Reader(client, session_id)
        async with watching(client, session_id, after_sequence=0) as watch:
            await reader.follow(watch, await _head(client, session_id))
        assert comparable(reader.fold.listed()) == comparable(listed)
