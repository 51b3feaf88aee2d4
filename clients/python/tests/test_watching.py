"""Watches when events alone do not tell what changed, and when a server asks the client to wait."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import timedelta

import grpc

from opencode.event.event_pb2 import WatchEventsResponse
from opencode.event.session_event_pb2 import (
    CaughtUp,
    ConversationChanged,
    MessageAdded,
    PartFinished,
    Resync,
    SessionEvent,
    TurnEnded,
)
from opencode.message.content_pb2 import (
    MESSAGE_TYPE_ASSISTANT,
    MESSAGE_TYPE_USER,
    PART_STATUS_STREAMING,
    Part,
    SessionMessage,
    TextContent,
)
from opencode.message.message_pb2 import ListMessagesResponse, SendMessageResponse
from opencode.session.session_pb2 import SESSION_STATUS_IDLE, ClearSessionRequest, RestoreSessionRequest
from opencode.session.session_pb2_grpc import SessionServiceStub
from opencode.turn.turn_pb2 import TURN_STATUS_ENDED, Turn
from turnwire_client import Answer, Client, Conversation, Update
from turnwire_client.calls import FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS, Pauses, is_transient
from turnwire_client.errors import ResourceExhaustedError, UnavailableError
from turnwire_client.watching import Watch


async def test_what_comes_back_is_read_anew(client: Client) -> None:
    """A restored conversation is shown in one step: no update has a part of it."""
    session_id = (await client.send("One")).session_id
    sessions = client.stub(SessionServiceStub)
    sizes = []
    async with client.watch(session_id) as updates:
        update = await anext(updates)
        while update.conversation.status != SESSION_STATUS_IDLE:
            update = await anext(updates)
        await client.call(sessions.ClearSession, ClearSessionRequest(session_id=session_id))
        while update.conversation.messages:
            update = await anext(updates)
        await client.call(sessions.RestoreSession, RestoreSessionRequest(session_id=session_id))
        while update.kind != "read":
            update = await anext(updates)
            sizes.append(len(update.conversation.messages))
    assert set(sizes) <= {0, 2}
    assert sizes[-1] == 2


class Script:
    """A caller whose server says what a test has written."""

    def __init__(self, *streams: list[WatchEventsResponse]) -> None:
        self.streams = list(streams)
        self.lists = 0
        self.tokens: list[str] = []

    async def call(self, *_: object, **__: object) -> ListMessagesResponse:
        """Answers a list, each one longer than the one before."""
        self.lists += 1
        messages = [message(number) for number in reversed(range(self.lists))]
        return ListMessagesResponse(messages=messages, sequence=10 * self.lists, resume_token=f"list-{self.lists}")

    async def stream(self, _: object, request: object, **__: object):  # type: ignore[no-untyped-def]
        """Answers the next stream, and then breaks."""
        self.tokens.append(request.resume_token)  # type: ignore[attr-defined]
        for batch in self.streams.pop(0):
            yield batch

    def can_renew(self) -> bool:
        """Says that there is one token."""
        return False


def message(number: int) -> SessionMessage:
    """Returns a message of a list."""
    return SessionMessage(message_id=f"msg_{number}", session_id="ses_1", type=MESSAGE_TYPE_USER)


def batch(*events: SessionEvent, token: str = "") -> WatchEventsResponse:
    """Returns a batch."""
    return WatchEventsResponse(events=events, resume_token=token)


def added(sequence: int, number: int) -> SessionEvent:
    """Returns an event that adds a message."""
    return SessionEvent(sequence=sequence, session_id="ses_1", message_added=MessageAdded(message=message(number)))


CAUGHT_UP = SessionEvent(session_id="ses_1", caught_up=CaughtUp())


async def updates_of(script: Script, count: int) -> list[tuple[str, list[str]]]:
    """Returns the first updates: what kind, and the messages that were shown."""
    async with grpc.aio.insecure_channel("127.0.0.1:1") as channel:
        found = []
        async with Watch(channel, script, Conversation("ses_1")) as watch:  # type: ignore[arg-type]
            while len(found) < count:
                update: Update = await anext(watch)
                found.append((update.kind, [m.message_id for m in update.conversation.messages]))
        return found


async def test_a_watch_that_breaks_goes_on_at_its_last_token() -> None:
    """Events of a batch without a token come again, and count once."""
    script = Script(
        [batch(CAUGHT_UP, token="a"), batch(added(11, 5), token="b"), batch(added(12, 6))],
        [batch(added(12, 6), added(13, 7), token="c")],
    )
    found = await updates_of(script, 5)
    assert [kind for kind, _ in found] == ["read", "message_added", "message_added", "lost", "message_added"]
    assert found[-1][1] == ["msg_0", "msg_5", "msg_6", "msg_7"]
    assert script.tokens == ["list-1", "b"]


async def test_resync_reads_the_list_and_shows_nothing_before_it_is_complete() -> None:
    """The old state stays on the screen until the new list has caught up, even across a break."""
    resync = SessionEvent(session_id="ses_1", resync=Resync())
    script = Script(
        [batch(CAUGHT_UP), batch(resync)],
        [batch(added(21, 8), token="x")],  # breaks before it has caught up
        [batch(added(22, 9)), batch(CAUGHT_UP, token="y")],
    )
    found = await updates_of(script, 3)
    assert found == [
        ("read", ["msg_0"]),
        ("lost", ["msg_0"]),
        ("read", ["msg_0", "msg_1", "msg_8", "msg_9"]),
    ]
    assert (script.tokens, script.lists) == (["list-1", "list-2", "x"], 2)


async def test_a_changed_conversation_keeps_what_is_shown_until_it_is_read() -> None:
    """Messages that come back are there at once with those that stayed."""
    changed = SessionEvent(sequence=11, session_id="ses_1", conversation_changed=ConversationChanged(reread=True))
    script = Script([batch(CAUGHT_UP), batch(changed, added(12, 5))], [batch(CAUGHT_UP)])
    assert await updates_of(script, 2) == [("read", ["msg_0"]), ("read", ["msg_0", "msg_1"])]


def test_pauses_grow_and_are_those_that_a_server_asks_for() -> None:
    """By chance up to the limit; a time that the server names counts more."""
    pauses = Pauses()
    drawn = [pauses.after(None) for _ in range(20)]
    assert FIRST_PAUSE_SECONDS / 2 <= drawn[0] <= FIRST_PAUSE_SECONDS
    assert MAX_PAUSE_SECONDS / 2 <= drawn[-1] <= MAX_PAUSE_SECONDS
    asked = UnavailableError("wait", code=grpc.StatusCode.UNAVAILABLE, retry_after=timedelta(seconds=7))
    assert 7 <= pauses.after(asked) <= 7 + FIRST_PAUSE_SECONDS


def test_only_errors_that_can_pass_are_tried_again() -> None:
    """A limit passes when the server names a time; a failure of the server itself does not."""
    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    assert not is_transient(ResourceExhaustedError("full", code=code, reason="STORAGE_FULL"))
    assert is_transient(ResourceExhaustedError("full", code=code, retry_after=timedelta(seconds=1)))
    assert is_transient(UnavailableError("gone", code=grpc.StatusCode.INTERNAL))
    assert not is_transient(UnavailableError("broken", code=grpc.StatusCode.INTERNAL, reason="INTERNAL"))


async def test_an_answer_that_ends_while_it_is_read_anew_is_whole() -> None:
    """The turn is read later than the list: what the model said in between comes with the events behind the list."""
    begun = Part(text=TextContent(text="Half"), status=PART_STATUS_STREAMING)
    whole = PartFinished(message_id="msg_1", part=Part(text=TextContent(text="Half, whole")))
    ended = Turn(turn_id="trn_1", status=TURN_STATUS_ENDED, end_sequence=7)
    held = Conversation("ses_1")

    async def updates() -> AsyncGenerator[Update, None]:
        answer = SessionMessage(message_id="msg_1", type=MESSAGE_TYPE_ASSISTANT, turn_id="trn_1", parts=[begun])
        held.reset([answer], sequence=5, resume_token="")
        yield Update(held)
        for event in (
            SessionEvent(sequence=6, session_id="ses_1", part_finished=whole),
            SessionEvent(sequence=7, session_id="ses_1", turn_ended=TurnEnded(turn=ended)),
        ):
            held.apply(event)
            yield Update(held, event)

    async def send() -> SendMessageResponse:
        return SendMessageResponse(session_id="ses_1", turn_id="trn_1")

    async def find_turn(*_: str) -> Turn:
        return ended

    assert await Answer(send, lambda _: aclosing(updates()), find_turn) == "Half, whole"  # type: ignore[arg-type, return-value]
