"""Messages are answered again; the answers are alternatives, and one of them is on the path."""

from typing import Any

import grpc

from opencode.event.session_event_pb2 import CONVERSATION_CHANGE_ALTERNATIVE_SELECTED, EVENT_KIND_TURN_ENDED
from opencode.message.content_pb2 import (
    CONTEXT_BREAK_UNSPECIFIED,
    FINISH_REASON_ABORTED,
    MESSAGE_TYPE_HOST,
    MESSAGE_TYPE_USER,
    SessionMessage,
)
from opencode.message.message_pb2 import (
    DISPOSITION_DUPLICATE,
    DISPOSITION_QUEUED,
    DISPOSITION_STARTED,
    AppendMessageRequest,
    ExplainContextRequest,
    GetMessageRequest,
)
from opencode.search.search_pb2 import SearchMessagesRequest
from opencode.session.session_pb2 import RevertSessionRequest
from opencode.turn.turn_pb2 import BUSY_POLICY_INTERRUPT, BUSY_POLICY_REJECT, BUSY_POLICY_STEER
from opencode.turn.turn_service_pb2 import (
    EditQueuedMessageRequest,
    GetTurnRequest,
    ListAlternativesRequest,
    RegenerateMessageRequest,
    SelectAlternativeRequest,
)
from tests.support.clients.conversation import (
    FOREVER,
    ask,
    displayed,
    messages_of,
    new_session,
    refused,
    talk,
    text,
    turn_ended,
    watching,
    words_of,
)
from tests.support.clients.rereading import Reader
from tests.support.oracles.fold import SessionFold, comparable
from tests.support.servers.running import Client


async def regenerate(client: Client, session_id: str, message_id: str, words: str = "", **fields: Any) -> Any:
    """Answers a message again, or another form of it; returns the answer when the turn is accepted."""
    parts = [text(words)] if words else []
    request = RegenerateMessageRequest(session_id=session_id, message_id=message_id, new_parts=parts, **fields)
    return await client.turns.RegenerateMessage(request)


async def regenerated(client: Client, session_id: str, message_id: str, words: str = "", **fields: Any) -> Any:
    """As `regenerate`, and waits for the end of the turn."""
    made = await regenerate(client, session_id, message_id, words, **fields)
    await ended(client, session_id, made)
    return made


async def ended(client: Client, session_id: str, made: Any) -> None:
    """Waits for the end of a turn."""
    watch = client.turns.WatchTurn(session_id=session_id, turn_id=made.turn.turn_id, resume_token=made.resume_token)
    async for _ in watch:
        pass


async def select(client: Client, session_id: str, message_id: str, **fields: Any) -> Any:
    """Leads the path through a message."""
    request = SelectAlternativeRequest(session_id=session_id, message_id=message_id, **fields)
    return await client.turns.SelectAlternative(request)


async def alternatives(client: Client, session_id: str, message_id: str = "", **fields: Any) -> Any:
    """Returns the alternatives of a message."""
    request = ListAlternativesRequest(session_id=session_id, message_id=message_id, **fields)
    return await client.turns.ListAlternatives(request)


async def words(client: Client, session_id: str) -> list[str]:
    """Returns what the listed messages say."""
    return [words_of(message) for message in await messages_of(client, session_id)]


async def explained(client: Client, session_id: str) -> str:
    """Returns what a model would be sent."""
    request = ExplainContextRequest(session_id=session_id, parts=[text("and now?")])
    return (await client.messages.ExplainContext(request)).request_json


async def append(client: Client, session_id: str, said: str, kind: Any = MESSAGE_TYPE_USER) -> str:
    """Stores a message without a turn and returns its id."""
    request = AppendMessageRequest(session_id=session_id, type=kind, parts=[text(said)])
    return (await client.messages.AppendMessage(request)).message_id


def numbers(messages: list[SessionMessage]) -> list[tuple[int, int]]:
    """Returns how many alternatives messages have, and which of them they are."""
    return [(message.alternative_count, message.alternative_index) for message in messages]


async def test_an_answer_is_given_again(client: Client) -> None:
    """The old one is in no list and no request; it is an alternative, and all behind it went with it."""
    session_id = (await talk(client, "one")).session_id
    await talk(client, "two", session_id)
    before = await messages_of(client, session_id)
    made = await regenerated(client, session_id, before[1].message_id)
    assert (made.disposition, made.user_message_id) == (DISPOSITION_STARTED, before[0].message_id)
    assert (made.queued_message_id, made.queue_position) == ("", 0)
    assert made.turn.replaces_turn_id == before[0].turn_id
    after = await messages_of(client, session_id)
    assert [words_of(message) for message in after] == ["one", "one"]
    assert after[0].message_id == before[0].message_id
    assert (after[0].turn_id, after[1].turn_id) == (made.turn.turn_id, made.turn.turn_id)
    assert after[1].previous_message_id == before[0].message_id
    assert numbers(after) == [(0, 0), (2, 1)]
    assert [shown.message_id for shown in await displayed(client, session_id)] == [m.message_id for m in after]
    assert "two" not in await explained(client, session_id)
    found = await alternatives(client, session_id, after[1].message_id)
    assert [message.message_id for message in found.messages] == [before[1].message_id, after[1].message_id]
    assert (found.selected_message_id, found.next_page_token) == (after[1].message_id, "")
    assert numbers(found.messages) == [(2, 0), (2, 1)]
    turn = (await client.turns.GetTurn(session_id=session_id, turn_id=made.turn.turn_id)).turn
    assert (turn.replaces_turn_id, turn.user_message_id) == (before[0].turn_id, before[0].message_id)


async def test_an_old_answer_is_chosen_again(client: Client) -> None:
    """With all that followed it, as it was; the newer one is an alternative then."""
    session_id = (await talk(client, "one")).session_id
    await talk(client, "two", session_id)
    before, sent = await messages_of(client, session_id), await explained(client, session_id)
    await regenerated(client, session_id, before[0].message_id)
    newer = await messages_of(client, session_id)
    chosen = await select(client, session_id, before[1].message_id)
    listed = await client.messages.ListMessages(session_id=session_id)
    assert listed.sequence == chosen.sequence + 1
    assert numbers(listed.messages) == [(0, 0), (2, 0), (0, 0), (0, 0)]
    for message, old in zip(listed.messages, before, strict=True):
        message.ClearField("alternative_count")
        assert comparable([message]) == comparable([old])
    assert await explained(client, session_id) == sent
    await select(client, session_id, newer[1].message_id)
    assert comparable(await messages_of(client, session_id)) == comparable(newer)
    head = (await client.messages.ListMessages(session_id=session_id)).sequence
    assert (await select(client, session_id, newer[1].message_id)).sequence == head
    assert (await client.messages.ListMessages(session_id=session_id)).sequence == head


async def test_a_question_is_edited(client: Client) -> None:
    """The edited one is an alternative of the question, at the beginning too; sender and facts stay."""
    session_id = (await talk(client, "one", sender="u1", metadata_json='{"a":1}')).session_id
    await talk(client, "two", session_id)
    before = await messages_of(client, session_id)
    second = await regenerated(client, session_id, before[3].message_id, "second")
    assert await words(client, session_id) == ["one", "one", "second", "second"]
    first = await regenerated(client, session_id, before[0].message_id, "first", request_id="edits-first")
    after = await messages_of(client, session_id)
    assert [words_of(message) for message in after] == ["first", "first"]
    assert first.user_message_id == after[0].message_id
    assert (after[0].sender, after[0].metadata_json, after[0].request_id) == ("u1", '{"a":1}', "edits-first")
    assert numbers(after) == [(2, 1), (0, 0)]
    found = await alternatives(client, session_id, previous_message_id="")
    assert [words_of(message) for message in found.messages] == ["one", "first"]
    await select(client, session_id, before[2].message_id)
    assert await words(client, session_id) == ["one", "one", "two", "two"]
    await select(client, session_id, first.user_message_id)
    await select(client, session_id, before[0].message_id)
    assert await words(client, session_id) == ["one", "one", "second", "second"]
    assert second.turn.replaces_turn_id == before[2].turn_id


async def test_messages_off_the_path_are_answered_again(client: Client) -> None:
    """The path leads through them then."""
    session_id = (await talk(client, "one")).session_id
    await talk(client, "two", session_id)
    before = await messages_of(client, session_id)
    await regenerated(client, session_id, before[0].message_id)
    await regenerated(client, session_id, before[3].message_id)
    after = await messages_of(client, session_id)
    assert [message.message_id for message in after[:3]] == [message.message_id for message in before[:3]]
    assert numbers(after) == [(0, 0), (2, 0), (0, 0), (2, 1)]
    assert after[0].turn_id == before[0].turn_id


async def test_a_regeneration_waits(client: Client) -> None:
    """A copy of the question stands for it in the queue, and goes when the turn begins; then the path changes."""
    session_id = (await talk(client, "one")).session_id
    before = await messages_of(client, session_id)
    running = await client.messages.SendMessage(ask(FOREVER, session_id))
    made = await regenerate(client, session_id, before[1].message_id, request_id="waits")
    assert (made.disposition, made.queue_position) == (DISPOSITION_QUEUED, 1)
    assert made.user_message_id == before[0].message_id != made.queued_message_id
    queue = await client.turns.ListQueue(session_id=session_id)
    assert [entry.message_id for entry in queue.entries] == [made.queued_message_id]
    assert [words_of(message) for message in queue.messages] == ["one"]
    again = await regenerate(client, session_id, before[1].message_id, request_id="waits")
    assert (again.disposition, again.queued_message_id) == (DISPOSITION_DUPLICATE, made.queued_message_id)
    assert (await refused(regenerate(client, session_id, made.queued_message_id))).reason == "TURN_EXISTS"
    await client.messages.AbortSession(session_id=session_id, expected_turn_id=running.turn_id, keep_queue=True)
    await ended(client, session_id, made)
    after = await messages_of(client, session_id)
    assert [message.message_id for message in after[:1]] == [before[0].message_id]
    assert numbers(after) == [(0, 0), (2, 1)]
    await select(client, session_id, running.message_id)
    assert [m.message_id for m in (await messages_of(client, session_id))[:3]] == [
        *(message.message_id for message in before),
        running.message_id,
    ]


async def test_an_edited_question_waits_and_is_changed(client: Client) -> None:
    """It waits as a message does; an edit of the copy that stands for a question makes an edited question of it."""
    session_id = (await talk(client, "one")).session_id
    question, answer = await messages_of(client, session_id)
    await client.messages.SendMessage(ask(FOREVER, session_id))
    edited = await regenerate(client, session_id, question.message_id, "uno")
    assert edited.user_message_id == edited.queued_message_id
    stand_in = await regenerate(client, session_id, answer.message_id)
    gone = await regenerate(client, session_id, answer.message_id)
    ids = {"session_id": session_id, "message_id": stand_in.queued_message_id}
    await client.turns.EditQueuedMessage(**ids, parts=[text("eins")])
    steer = EditQueuedMessageRequest(**ids, busy_policy=BUSY_POLICY_STEER)
    assert (await refused(client.turns.EditQueuedMessage(steer))).fields == ["busy_policy"]
    await client.turns.RemoveQueuedMessage(session_id=session_id, message_id=gone.queued_message_id)
    await client.messages.AbortSession(session_id=session_id, keep_queue=True)
    await ended(client, session_id, stand_in)
    after = await messages_of(client, session_id)
    assert [words_of(message) for message in after] == ["eins", "eins"]
    assert numbers(after) == [(3, 2), (0, 0)]
    found = await alternatives(client, session_id, question.message_id, page_size=2)
    assert [words_of(message) for message in found.messages] == ["one", "uno"]
    rest = await alternatives(client, session_id, question.message_id, page_size=2, page_token=found.next_page_token)
    assert [words_of(message) for message in rest.messages] == ["eins"]


async def test_busy_policies(client: Client) -> None:
    """REJECT refuses, INTERRUPT ends the turn that runs, STEER is no policy for an answer of its own."""
    session_id = await new_session(client)
    running = await client.messages.SendMessage(ask(FOREVER, session_id))
    found = await refused(regenerate(client, session_id, running.message_id, busy_policy=BUSY_POLICY_REJECT))
    assert (found.code, found.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "TURN_IN_PROGRESS")
    found = await refused(regenerate(client, session_id, running.message_id, busy_policy=BUSY_POLICY_STEER))
    assert (found.reason, found.fields) == ("INVALID_REQUEST", ["busy_policy"])
    made = await regenerate(client, session_id, running.message_id, "short", busy_policy=BUSY_POLICY_INTERRUPT)
    await ended(client, session_id, made)
    request = GetTurnRequest(session_id=session_id, turn_id=running.turn_id)
    turn = (await client.turns.GetTurn(request)).turn
    assert (turn.finish_reason, turn.ended_by_message_id) == (FINISH_REASON_ABORTED, made.user_message_id)
    assert await words(client, session_id) == ["short", "short"]
    found = await alternatives(client, session_id, made.user_message_id)
    assert [message.message_id for message in found.messages] == [running.message_id, made.user_message_id]


async def test_selecting_waits_for_nobody(client: Client) -> None:
    """It is refused while a turn runs, when the session has changed, and when the message cannot be on a path."""
    session_id = (await talk(client, "one")).session_id
    question, answer = await messages_of(client, session_id)
    await regenerated(client, session_id, answer.message_id)
    found = await refused(select(client, session_id, answer.message_id, expected_sequence=1))
    assert (found.code, found.reason) == (grpc.StatusCode.ABORTED, "STALE_VERSION")
    await client.messages.SendMessage(ask(FOREVER, session_id))
    waiting = await client.messages.SendMessage(ask("next", session_id))
    found = await refused(select(client, session_id, answer.message_id))
    assert (found.code, found.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "TURN_IN_PROGRESS")
    assert (await refused(alternatives(client, session_id, waiting.message_id))).reason == "MESSAGE_NOT_FOUND"
    await client.messages.AbortSession(session_id=session_id)
    other = (await talk(client, "other")).message_id
    note = await append(client, session_id, "for people", MESSAGE_TYPE_HOST)
    for message_id in (other, "msg_unknown"):
        for call in (select, alternatives, regenerate):
            assert (await refused(call(client, session_id, message_id))).reason == "MESSAGE_NOT_FOUND"
    assert (await refused(regenerate(client, session_id, note))).fields == ["message_id"]
    assert (await refused(select(client, "ses_unknown", note))).reason == "SESSION_NOT_FOUND"
    assert (await refused(select(client, "", ""))).fields == ["session_id", "message_id"]
    assert (await refused(alternatives(client, session_id))).fields == ["message_id"]
    found = await refused(alternatives(client, session_id, note, previous_message_id=note))
    assert found.fields == ["previous_message_id"]
    bad = RegenerateMessageRequest(session_id=session_id, message_id=question.message_id, new_parts=[text(" ")])
    assert (await refused(client.turns.RegenerateMessage(bad))).fields == ["new_parts[0].text.text"]
    named = {"request_id": "selects-once"}
    first = await select(client, session_id, answer.message_id, **named)
    newest = (await alternatives(client, session_id, answer.message_id)).messages[-1]
    await select(client, session_id, newest.message_id)
    assert (await select(client, session_id, answer.message_id, **named)).sequence == first.sequence
    assert (await refused(select(client, session_id, newest.message_id, **named))).reason == "REQUEST_ID_REUSED"
    assert answer.message_id not in [message.message_id for message in await messages_of(client, session_id)]


async def test_watchers_are_told(client: Client) -> None:
    """Their fold is what ListMessages answers after each change; the change passes filters and is replayed."""
    session_id = (await talk(client, "one")).session_id
    await talk(client, "two", session_id)
    before = await messages_of(client, session_id)
    fold = SessionFold(session_id)
    async with (
        watching(client, session_id, fold, after_sequence=0) as watch,
        watching(client, session_id, kinds=[EVENT_KIND_TURN_ENDED]) as narrow,
    ):
        await narrow.until_kind("caught_up")
        made = await regenerated(client, session_id, before[3].message_id)
        event = await watch.until_kind("conversation_changed")
        assert (event.turn_id, event.sequence) == (made.turn.turn_id, made.sequence + 1)
        changed = event.conversation_changed
        assert (changed.change, changed.reread) == (CONVERSATION_CHANGE_ALTERNATIVE_SELECTED, False)
        assert changed.kept_through_message_id == before[2].message_id
        await watch.until_kind("turn_ended", 3)
        assert comparable(fold.listed()) == comparable(await messages_of(client, session_id))
        await regenerated(client, session_id, before[2].message_id, "zwei")
        await watch.until_kind("turn_ended", 4)
        assert comparable(fold.listed()) == comparable(await messages_of(client, session_id))
        await client.messages.SendMessage(ask(FOREVER, session_id))
        waiting = await regenerate(client, session_id, before[0].message_id, "uno")
        await client.messages.AbortSession(session_id=session_id, keep_queue=True)
        await ended(client, session_id, waiting)
        await watch.until_kind("turn_ended", 6)
        assert comparable(fold.listed()) == comparable(await messages_of(client, session_id))
        assert numbers(fold.listed()) == [(2, 1), (0, 0)]
        chosen = await select(client, session_id, before[3].message_id)
        changed = (await watch.until_kind("conversation_changed", 4)).conversation_changed
        assert changed.reread and not changed.HasField("kept_through_message_id")
        await narrow.until_kind("conversation_changed", 4)
    kinds = {event.WhichOneof("kind") for event in narrow.events if event.sequence}
    assert kinds == {"conversation_changed", "message_replaced", "turn_ended"}
    async with watching(client, session_id, resume_token=chosen.resume_token) as watch:
        assert (await watch.until_kind("conversation_changed")).sequence == chosen.sequence + 1


async def test_what_was_taken_back_is_no_alternative(client: Client) -> None:
    """Clear takes back what could begin the conversation as well; restore brings it back, but not over another path."""
    session_id = (await talk(client, "one")).session_id
    question, old = await messages_of(client, session_id)
    await regenerated(client, session_id, old.message_id)
    edited = await regenerated(client, session_id, question.message_id, "uno")
    shown = await messages_of(client, session_id)
    revert = RevertSessionRequest(session_id=session_id, before_message_id=edited.user_message_id)
    await client.sessions.RevertSession(revert)
    found = await alternatives(client, session_id, previous_message_id="")
    assert ([m.message_id for m in found.messages], found.selected_message_id) == ([question.message_id], "")
    assert (await refused(alternatives(client, session_id, edited.user_message_id))).reason == "MESSAGE_NOT_FOUND"
    await client.sessions.RestoreSession(session_id=session_id)
    assert comparable(await messages_of(client, session_id)) == comparable(shown)
    await client.sessions.ClearSession(session_id=session_id)
    for message_id in (question.message_id, old.message_id, edited.user_message_id):
        assert (await refused(select(client, session_id, message_id))).reason == "MESSAGE_NOT_FOUND"
    await client.sessions.RestoreSession(session_id=session_id)
    assert comparable(await messages_of(client, session_id)) == comparable(shown)
    await client.sessions.RevertSession(revert)
    await select(client, session_id, old.message_id)
    restore = client.sessions.RestoreSession(session_id=session_id)
    assert (await refused(restore)).reason == "NOTHING_TO_RESTORE"
    assert await words(client, session_id) == ["one", "one"]


async def test_a_moved_question_takes_its_answers_along(client: Client) -> None:
    """StartTurn moves it to the end; what is off the path behind it stays behind it."""
    session_id = await new_session(client)
    question = await append(client, session_id, "one")
    await regenerated(client, session_id, question)
    first = (await messages_of(client, session_id))[1]
    revert = RevertSessionRequest(session_id=session_id, before_message_id=first.message_id)
    await regenerated(client, session_id, question)
    second = (await messages_of(client, session_id))[1]
    revert.before_message_id = second.message_id
    await client.sessions.RevertSession(revert)
    note = await append(client, session_id, "note")
    fold = SessionFold(session_id)
    async with watching(client, session_id, fold, after_sequence=0) as watch:
        started = await client.turns.StartTurn(session_id=session_id, user_message_id=question)
        await ended(client, session_id, started)
        await watch.until_kind("turn_ended", 3)
    after = await messages_of(client, session_id)
    assert comparable(fold.listed()) == comparable(after)
    assert [message.message_id for message in after[:2]] == [note, question]
    assert numbers(after) == [(0, 0), (0, 0), (2, 1)]
    await select(client, session_id, first.message_id)
    assert [m.message_id for m in await messages_of(client, session_id)] == [note, question, first.message_id]


async def test_a_message_may_have_other_ones_beside_it(client: Client) -> None:
    """One that waits tells it when its turn begins, as another is off the path behind the same message."""
    session_id = (await talk(client, "one")).session_id
    question, answer = await messages_of(client, session_id)
    await regenerated(client, session_id, question.message_id)
    newer = (await messages_of(client, session_id))[1]
    await client.sessions.RevertSession(session_id=session_id, before_message_id=newer.message_id)
    fold = SessionFold(session_id)
    async with watching(client, session_id, fold, after_sequence=0) as watch:
        await talk(client, "next", session_id)
        await watch.until_kind("turn_ended", 3)
        listed = await messages_of(client, session_id)
        assert numbers(listed) == [(0, 0), (2, 1), (0, 0)]
        assert comparable(fold.listed()) == comparable(listed)
    found = await alternatives(client, session_id, previous_message_id=question.message_id)
    assert [message.message_id for message in found.messages] == [answer.message_id, listed[1].message_id]


async def test_messages_off_the_path_are_read_by_id_alone(client: Client) -> None:
    """Search and copies leave them out; a copy has no alternatives."""
    session_id = (await talk(client, "quokka")).session_id
    question, answer = await messages_of(client, session_id)
    await regenerated(client, session_id, question.message_id, "wombat")
    request = GetMessageRequest(session_id=session_id, message_id=answer.message_id)
    assert words_of((await client.messages.GetMessage(request)).message) == "quokka"
    search = SearchMessagesRequest(query="quokka", session_ids=[session_id])
    assert not (await client.search.SearchMessages(search)).hits
    copy = (await client.sessions.ForkSession(session_id=session_id)).session.id
    assert numbers(await messages_of(client, copy)) == [(0, 0), (0, 0)]
    found = await refused(client.sessions.ForkSession(session_id=session_id, through_message_id=answer.message_id))
    assert found.reason == "MESSAGE_NOT_FOUND"
    await select(client, session_id, question.message_id)
    assert len((await client.search.SearchMessages(search)).hits) == 2


async def test_a_question_that_waits_itself_is_not_answered_again(client: Client) -> None:
    """A turn that was to answer it again ends as ABORTED; nothing of it stays."""
    session_id = await new_session(client)
    question = await append(client, session_id, "one")
    running = await client.messages.SendMessage(ask(FOREVER, session_id))
    made = await regenerate(client, session_id, question)
    started = await client.turns.StartTurn(session_id=session_id, user_message_id=question)
    await client.messages.AbortSession(session_id=session_id, keep_queue=True)
    await ended(client, session_id, started)
    turn = (await client.turns.GetTurn(session_id=session_id, turn_id=made.turn.turn_id)).turn
    assert (turn.finish_reason, turn.start_sequence) == (FINISH_REASON_ABORTED, 0)
    listed = await messages_of(client, session_id)
    assert [message.message_id for message in listed if message.type == MESSAGE_TYPE_USER] == [
        running.message_id,
        question,
    ]
    missing = GetMessageRequest(session_id=session_id, message_id=made.queued_message_id)
    assert (await refused(client.messages.GetMessage(missing))).reason == "MESSAGE_NOT_FOUND"


async def test_a_message_that_joined_a_turn_is_answered_again(client: Client) -> None:
    """Later messages leave the path; chosen again, it belongs to its own turn, which joined the other, as before."""
    session_id = await new_session(client)
    running = await client.messages.SendMessage(ask("/sleep 0.3\n/tool nothing {}\n/step\ndone", session_id))
    joined = await client.messages.SendMessage(ask("and this", session_id, busy_policy=BUSY_POLICY_STEER))
    await turn_ended(client, running)
    before = await messages_of(client, session_id)
    assert [message.message_id for message in before].index(joined.message_id) == 2
    made = await regenerated(client, session_id, joined.message_id)
    after = await messages_of(client, session_id)
    assert comparable(after[:2]) == comparable(before[:2])
    assert [words_of(message) for message in after[2:]] == ["and this", "and this"]
    assert (after[2].turn_id, made.turn.replaces_turn_id) == (made.turn.turn_id, joined.turn_id)
    await select(client, session_id, before[3].message_id)
    again = await messages_of(client, session_id)
    assert [(m.message_id, m.turn_id) for m in again] == [(m.message_id, m.turn_id) for m in before]


async def test_a_new_answer_is_asked_for_with_the_words_before_it(client: Client) -> None:
    """Its request extends that of the answer before, and is the one that the former answer was given to."""
    session_id = (await talk(client, "one")).session_id
    await talk(client, "two", session_id)
    before = await messages_of(client, session_id)
    await regenerated(client, session_id, before[3].message_id)
    again = (await messages_of(client, session_id))[3].sent_context
    assert (again.prefix_hash, again.message_count) == (before[3].sent_context.prefix_hash, 3)
    assert again.break_reason == CONTEXT_BREAK_UNSPECIFIED
    await regenerated(client, session_id, before[0].message_id, "uno")
    await select(client, session_id, before[3].message_id)
    await talk(client, "three", session_id)
    latest = (await messages_of(client, session_id))[-1].sent_context
    assert (latest.message_count, latest.break_reason) == (5, CONTEXT_BREAK_UNSPECIFIED)


async def test_a_slow_client_is_not_led_back_by_older_snapshots(client: Client) -> None:
    """Late snapshots, behind a newer list, neither revive an answer nor let a message wait again."""
    session_id = await new_session(client)
    first = await talk(client, "one", session_id)
    answer = (await messages_of(client, session_id))[1].message_id
    again = RegenerateMessageRequest(session_id=session_id, message_id=first.message_id)
    made = await client.turns.RegenerateMessage(again)
    async with watching(client, session_id, resume_token=made.resume_token) as watch:
        await watch.until_turn_ended(made.turn.turn_id)
    request = SelectAlternativeRequest(session_id=session_id, message_id=answer)
    await client.turns.SelectAlternative(request)
    running = await client.messages.SendMessage(ask(FOREVER, session_id, busy_policy=BUSY_POLICY_INTERRUPT))
    waiting = await client.messages.SendMessage(ask("two", session_id))
    reader = Reader(client, session_id)
    async with watching(client, session_id, after_sequence=0) as watch:
        await watch.until_kind("message_snapshot")
        await watch.until_kind("caught_up")
        await client.messages.AbortSession(session_id=session_id, keep_queue=True)
        await turn_ended(client, running)
        await turn_ended(client, waiting)
        selected = await client.turns.SelectAlternative(request)
        for event in list(watch.events):
            await reader.take(event)
        await reader.follow(watch, selected.sequence)
    assert comparable(reader.fold.listed()) == comparable(await messages_of(client, session_id))
