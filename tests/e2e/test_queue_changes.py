"""Waiting messages are listed, edited, moved and removed; watchers are told, and restarts keep it."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from opencode.message.content_pb2 import FINISH_REASON_ABORTED, MESSAGE_TYPE_USER
from opencode.message.message_pb2 import AppendMessageRequest, GetMessageRequest, SendMessageResponse
from opencode.turn.turn_pb2 import BUSY_POLICY_QUEUE, BUSY_POLICY_REJECT, TURN_STATUS_ENDED, TurnSettings
from opencode.turn.turn_service_pb2 import (
    GetTurnRequest,
    ListQueueResponse,
    MoveQueuedMessageRequest,
    RemoveQueuedMessageRequest,
    StartTurnRequest,
)
from tests.support.clients.conversation import (
    FOREVER,
    ask,
    displayed,
    file,
    messages_of,
    model_name,
    new_session,
    refused,
    session_of,
    talk,
    text,
    turn_ended,
    watching,
    words_of,
)
from tests.support.oracles.fold import SessionFold, comparable
from tests.support.servers.running import Client, connect, running_server


class Queued:
    """A session with a turn that runs for ever and messages that wait, and a watch that folds what it hears."""

    def __init__(self, client: Client, running: SendMessageResponse, fold: SessionFold) -> None:
        """Takes the running turn; nothing waits yet."""
        self.client = client
        self.running = running
        self.session_id = running.session_id
        self.fold = fold
        self.waiting: dict[str, SendMessageResponse] = {}

    async def send(self, *names: str) -> None:
        """Sends messages that say their names."""
        for name in names:
            self.waiting[name] = await self.client.messages.SendMessage(ask(name, self.session_id))

    def id(self, name: str) -> str:
        """Returns the id of a message."""
        return self.waiting[name].message_id

    async def listed(self, **fields: Any) -> ListQueueResponse:
        """Returns the queue."""
        return await self.client.turns.ListQueue(session_id=self.session_id, **fields)

    async def words(self) -> str:
        """Returns what waits, next first; list, conversation and session agree on it."""
        queue = await self.listed()
        stored = await messages_of(self.client, self.session_id)
        assert [one.message_id for one in queue.entries] == [one.message_id for one in queue.messages]
        assert stored[len(stored) - len(queue.messages) :] == list(queue.messages)
        shown = await displayed(self.client, self.session_id)
        assert [one.message_id for one in shown] == [one.message_id for one in stored]
        assert (await session_of(self.client, self.session_id)).queued_messages == len(queue.entries)
        return " ".join(map(words_of, queue.messages))

    def edit(self, name: str, *words: str, **fields: Any) -> Any:
        """Replaces what a message says."""
        parts = [text(one) for one in words]
        request = {"session_id": self.session_id, "message_id": self.id(name), "parts": parts, **fields}
        return self.client.turns.EditQueuedMessage(**request)

    def move(self, name: str, before: str = "", **fields: Any) -> Any:
        """Moves a message before another one, or to the end."""
        request = MoveQueuedMessageRequest(session_id=self.session_id, message_id=self.id(name), **fields)
        request.before_message_id = self.id(before) if before else ""
        return self.client.turns.MoveQueuedMessage(request)

    def remove(self, name: str, **fields: Any) -> Any:
        """Removes a message."""
        request = RemoveQueuedMessageRequest(session_id=self.session_id, message_id=self.id(name), **fields)
        return self.client.turns.RemoveQueuedMessage(request)

    async def abort(self) -> None:
        """Ends the running turn, so that the next message is answered."""
        await self.client.messages.AbortSession(session_id=self.session_id, keep_queue=True)


@pytest.fixture
async def queued(client: Client) -> AsyncIterator[Queued]:
    """Three messages that wait. In the end, what was told is what is stored."""
    running = await client.messages.SendMessage(ask(FOREVER))
    fold = SessionFold(running.session_id)
    one = Queued(client, running, fold)
    await one.send("a", "b", "c")
    async with watching(client, running.session_id, fold, after_sequence=0) as watch:
        yield one
        if not fold.deleted:
            head = (await session_of(client, one.session_id)).head_sequence
            await watch.until(lambda _: (fold.head or 0) >= head)
            assert comparable(fold.listed()) == comparable(await messages_of(client, one.session_id))
            assert fold.queue_revision == (await one.listed()).revision
            await client.sessions.DeleteSession(session_id=one.session_id)


async def test_the_queue_is_listed_in_pages(queued: Queued) -> None:
    """Next first, with the policy, the whole messages and the revision."""
    first = await queued.listed(page_size=2)
    rest = await queued.listed(page_size=2, page_token=first.next_page_token)
    entries = [(one.message_id, one.turn_id, one.busy_policy) for one in (*first.entries, *rest.entries)]
    assert entries == [(s.message_id, s.turn_id, BUSY_POLICY_QUEUE) for s in queued.waiting.values()]
    assert [words_of(one) for one in (*first.messages, *rest.messages)] == ["a", "b", "c"]
    assert (first.revision, rest.revision, rest.next_page_token) == (3, 3, "")
    assert (await refused(queued.listed(page_token="x", page_size=1))).reason == "INVALID_REQUEST"


@pytest.mark.parametrize(
    ("moved", "before", "order"),
    [("c", "a", "c a b"), ("a", "", "b c a"), ("a", "c", "b a c"), ("b", "c", "a b c"), ("c", "", "a b c")],
)
async def test_a_message_is_moved(queued: Queued, moved: str, before: str, order: str) -> None:
    """Before another one or to the end; those that come later are behind all, and they are answered in this order."""
    answer = await queued.move(moved, before)
    assert [one.message_id for one in answer.entries] == [queued.id(name) for name in order.split()]
    assert answer.revision == 4
    assert await queued.words() == order
    await queued.send("d")
    await queued.abort()
    await turn_ended(queued.client, queued.waiting["d"])
    answered = [m for m in await messages_of(queued.client, queued.session_id) if m.answers_message_id]
    assert [words_of(m) for m in answered[1:]] == [*order.split(), "d"]


async def test_a_message_is_edited_in_its_place(queued: Queued) -> None:
    """Parts, display and what the model reads are new; its id, turn and place are not. Files come and go."""
    picture = file(data=b"pixels", filename="a.txt", mime="text/plain")
    longer = [text("one"), picture, text("two")]
    edited = await queued.edit("b", parts=longer)
    assert (edited.message.message_id, edited.message.turn_id) == (queued.id("b"), queued.waiting["b"].turn_id)
    assert [part.WhichOneof("content") for part in edited.message.parts] == ["text", "file", "text"]
    again = await queued.edit("b", parts=[picture])
    assert [part.file.filename for part in again.message.parts] == ["a.txt"]
    last = await queued.edit("b", "new words")
    assert (words_of(last.message), last.revision) == ("new words", 6)
    assert await queued.words() == "a new words c"
    one = GetMessageRequest(session_id=queued.session_id, message_id=queued.id("b"))
    assert (await queued.client.messages.GetMessage(one)).message == last.message
    await queued.abort()
    await turn_ended(queued.client, queued.waiting["c"])
    answered = [m for m in await messages_of(queued.client, queued.session_id) if m.answers_message_id]
    assert [words_of(m) for m in answered[1:]] == ["a", "new words", "c"]


async def test_a_message_is_removed(queued: Queued) -> None:
    """Its turn ends as aborted without having begun; nothing of it is left in the conversation."""
    assert (await queued.remove("b")).revision == 4
    assert await queued.words() == "a c"
    asked = GetTurnRequest(session_id=queued.session_id, turn_id=queued.waiting["b"].turn_id)
    turn = (await queued.client.turns.GetTurn(asked)).turn
    assert (turn.status, turn.finish_reason, turn.start_sequence) == (TURN_STATUS_ENDED, FINISH_REASON_ABORTED, 0)
    assert turn.end_sequence
    for name in "ac":
        await queued.remove(name)
    assert await queued.words() == ""
    await queued.send("d")
    await queued.abort()
    await turn_ended(queued.client, queued.waiting["d"])


async def test_a_late_message_is_put_back(queued: Queued) -> None:
    """One that StartTurn queued was part of the conversation before, and is again."""
    appended = AppendMessageRequest(session_id=queued.session_id, type=MESSAGE_TYPE_USER, parts=[text("late")])
    message_id = (await queued.client.messages.AppendMessage(appended)).message_id
    settings = TurnSettings(model=model_name("echo"))
    start = StartTurnRequest(session_id=queued.session_id, user_message_id=message_id, settings=settings)
    started = await queued.client.turns.StartTurn(start)
    queued.waiting["late"] = SendMessageResponse(message_id=message_id, turn_id=started.turn.turn_id)
    assert await queued.words() == "a b c late"
    await queued.edit("late", "later")
    await queued.move("late", "a")
    assert await queued.words() == "later a b c"
    await queued.remove("late")
    assert await queued.words() == "a b c"
    last, *_ = [m for m in reversed(await messages_of(queued.client, queued.session_id)) if words_of(m) not in "abc"]
    assert (words_of(last), last.turn_id) == ("later", "")


async def test_a_change_is_refused_when_the_queue_is_another_one(queued: Queued) -> None:
    """The error has the current revision; nothing has changed. With the right one it is carried out."""
    for change in (queued.edit("b", "x", expected_revision=2), queued.move("c", "a", expected_revision=2)):
        stale = await refused(change)
        assert (stale.reason, stale.metadata["currentRevision"]) == ("STALE_VERSION", "3")
    assert (await refused(queued.remove("a", expected_revision=4))).reason == "STALE_VERSION"
    assert await queued.words() == "a b c"
    revision = (await queued.move("c", "a", expected_revision=3)).revision
    revision = (await queued.edit("b", "x", expected_revision=revision)).revision
    assert (await queued.remove("a", expected_revision=revision)).revision == 6
    assert await queued.words() == "c x"


async def test_a_repeated_change_is_carried_out_once(queued: Queued) -> None:
    """The retry gets what is there then; the name is taken for anything else."""
    for change in (
        lambda: queued.edit("b", "x", request_id="edit", expected_revision=3),
        lambda: queued.move("c", "a", request_id="move"),
        lambda: queued.remove("a", request_id="remove"),
    ):
        first = await change()
        assert await change() == first
    assert await queued.words() == "c x"
    assert (await refused(queued.remove("c", request_id="remove"))).reason == "REQUEST_ID_REUSED"


async def test_a_message_that_does_not_wait_is_not_changed(queued: Queued) -> None:
    """Neither one whose turn runs, nor one that was answered or removed; one that never was is not found."""
    queued.waiting["running"] = queued.running
    await queued.remove("c")
    for name, reason in (("running", "MESSAGE_NOT_WAITING"), ("c", "MESSAGE_NOT_FOUND")):
        assert (await refused(queued.edit(name, "x"))).reason == reason
        assert (await refused(queued.move(name, "a"))).reason == reason
        assert (await refused(queued.move("a", name))).reason == reason
        assert (await refused(queued.remove(name))).reason == reason
    assert await queued.words() == "a b"
    idle = await talk(queued.client, "hello")
    request = RemoveQueuedMessageRequest(session_id=idle.session_id, message_id=idle.message_id)
    assert (await refused(queued.client.turns.RemoveQueuedMessage(request))).reason == "MESSAGE_NOT_WAITING"


async def test_a_change_without_sense_names_its_field(queued: Queued) -> None:
    """Nothing is stored."""
    for change, field in (
        (queued.edit("a"), "parts"),
        (queued.edit("a", " "), "parts[0].text.text"),
        (queued.edit("a", "x", busy_policy=BUSY_POLICY_REJECT), "busy_policy"),
        (queued.edit("a", "x", busy_policy=77), "busy_policy"),
        (queued.edit("a", parts=[file(path="/etc/shadow")]), "parts[0].file.path"),
        (queued.move("a", "a"), "before_message_id"),
        (queued.remove("a", request_id="x" * 200), "request_id"),
    ):
        refusal = await refused(change)
        assert (refusal.reason, refusal.fields) == ("INVALID_REQUEST", [field])
    assert (await queued.listed()).revision == 3


async def test_an_edit_counts_for_the_quota(tmp_path: Path) -> None:
    """A tenant that has no room keeps the message that it has; one that is too large is refused as at its sending."""
    limits = "[quotas]\nmax_stored_bytes = 60000\n[limits]\nmax_message_bytes = 200000"
    async with running_server(tmp_path, limits) as server, connect(server.address) as client:
        session_id = await new_session(client)
        one = Queued(client, await client.messages.SendMessage(ask(FOREVER, session_id)), SessionFold(""))
        await one.send("a")
        assert (await refused(one.edit("a", "x" * 100_000))).reason == "QUOTA_EXCEEDED"
        assert (await refused(one.edit("a", "x" * 300_000))).reason == "MESSAGE_TOO_LARGE"
        assert await one.words() == "a"
