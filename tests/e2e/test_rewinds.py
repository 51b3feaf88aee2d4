"""Messages are taken back and brought back: they are hidden from models and lists, and nothing is lost."""

from typing import Any

import grpc

from opencode.event.session_event_pb2 import (
    CONVERSATION_CHANGE_CLEARED,
    CONVERSATION_CHANGE_RESTORED,
    CONVERSATION_CHANGE_REVERTED,
    EVENT_KIND_TURN_ENDED,
)
from opencode.message.content_pb2 import MESSAGE_TYPE_USER
from opencode.message.message_pb2 import AppendMessageRequest, ExplainContextRequest, SendMessageRequest
from opencode.session.session_pb2 import ForkSessionRequest, RevertSessionRequest
from tests.support.clients.conversation import (
    FOREVER,
    ask,
    displayed,
    file,
    messages_of,
    new_session,
    refused,
    talk,
    text,
    turn_ended,
    watching,
    words_of,
)
from tests.support.oracles.fold import SessionFold, comparable
from tests.support.servers.running import Client


async def clear(client: Client, session_id: str, **fields: Any) -> Any:
    """Hides everything."""
    return await client.sessions.ClearSession(session_id=session_id, **fields)


async def revert(client: Client, session_id: str, message_id: str, **fields: Any) -> Any:
    """Hides the end of a conversation."""
    request = RevertSessionRequest(session_id=session_id, before_message_id=message_id, **fields)
    return await client.sessions.RevertSession(request)


async def restore(client: Client, session_id: str, **fields: Any) -> Any:
    """Brings back what was hidden last."""
    return await client.sessions.RestoreSession(session_id=session_id, **fields)


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
    paged = await client.messages.GetMessages(session_id=session_id, page_size=5)
    assert not paged.messages
    assert "hello" not in await explained(client, session_id)
    await talk(client, "next", session_id)
    after = await messages_of(client, session_id)
    assert [words_of(message) for message in after] == ["next", "next"]
    assert after[0].previous_message_id == ""
    for message in before:
        found = await client.messages.GetMessage(session_id=session_id, message_id=message.message_id)
        assert found.message == message
    sha256 = before[0].parts[1].file.sha256
    pieces = client.files.DownloadFile(session_id=session_id, sha256=sha256)
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
        found = await client.sessions.GetSession(session_id=session_id)
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
    """Messages hidden before it stay hidden; those hidden after it can come back."""
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
    await client.messages.AbortSession(session_id=session_id, expected_turn_id=running.turn_id, keep_queue=True)
    await turn_ended(client, waiting)
    await clear(client, session_id)
    assert await words(client, session_id) == []


async def test_unknown_messages_are_refused(client: Client) -> None:
    """Messages of another session, hidden or never stored ones are, and a request without what it needs."""
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
