"""Archived sessions: put away, listed apart, and brought back by a message."""

from datetime import UTC, datetime

import grpc
import pytest

from opencode.event.session_event_pb2 import SessionEvent
from opencode.message.content_pb2 import MESSAGE_TYPE_USER
from opencode.message.message_pb2 import AppendMessageRequest
from opencode.session.session_pb2 import (
    SESSION_ORDER_CREATED,
    SESSION_ORDER_TITLE,
    ArchiveSessionRequest,
    ListSessionsRequest,
    SessionInfo,
    SessionSettings,
)
from opencode.turn.turn_pb2 import BUSY_POLICY_INTERRUPT, BUSY_POLICY_QUEUE, BUSY_POLICY_STEER
from opencode.turn.turn_service_pb2 import StartTurnRequest
from tests.support.clients.archives import bring, export
from tests.support.clients.conversation import (
    FOREVER,
    ask,
    change_of,
    messages_of,
    new_session,
    refused,
    talk,
    text,
    turn_ended,
    watching,
    words_of,
)
from tests.support.servers.running import Client


async def _session(client: Client, session_id: str) -> SessionInfo:
    return (await client.sessions.GetSession(session_id=session_id)).session


async def _updates(client: Client, session_id: str) -> list[SessionEvent]:
    """Returns the session's events so far."""
    async with watching(client, session_id, after_sequence=0) as watch:
        await watch.until_kind("caught_up")
        return list(watch.events)


async def test_archiving_is_told_once(client: Client) -> None:
    """The answer leads to the event; a session that is archived is left as it is; a retry gets the first answer."""
    session_id = await new_session(client, title="Mine")
    request = ArchiveSessionRequest(session_id=session_id, request_id=f"archive {session_id}")
    answer = await client.sessions.ArchiveSession(request)
    assert (answer.sequence, answer.session.HasField("archive_time"), answer.session.revision) == (1, True, 1)
    async with watching(client, session_id, resume_token=answer.resume_token) as watch:
        told = (await watch.until_kind("session_updated")).session_updated.session
    assert (told.archive_time, told.title) == (answer.session.archive_time, "Mine")
    again = await client.sessions.ArchiveSession(session_id=session_id)
    assert (again.sequence, again.session.archive_time) == (2, told.archive_time)
    assert (await client.sessions.ArchiveSession(request)).sequence == 1
    back = await client.sessions.UnarchiveSession(session_id=session_id)
    assert (back.sequence, back.session.HasField("archive_time")) == (2, False)
    assert (await client.sessions.UnarchiveSession(session_id=session_id)).sequence == 3
    other = await refused(client.sessions.UnarchiveSession(session_id="ses_none"))
    assert (other.code, other.reason) == (grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND")


@pytest.mark.parametrize("way", ["send", "append", "start"])
async def test_a_message_takes_a_session_out_of_the_archive(client: Client, way: str) -> None:
    """In the commit that stores it, and after it; settings and rewinds leave the session archived."""
    accepted = await talk(client, "hello")
    session_id = accepted.session_id
    await turn_ended(client, accepted)
    waiting = AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_USER, parts=[text("and?")])
    appended = await client.messages.AppendMessage(waiting)
    archived = await client.sessions.ArchiveSession(session_id=session_id)
    await client.sessions.UpdateSession(change_of(session_id, title="Titled"))
    assert (await _session(client, session_id)).archive_time == archived.session.archive_time
    if way == "send":
        await turn_ended(client, await talk(client, "back", session_id))
    elif way == "append":
        await client.messages.AppendMessage(waiting)
    else:
        request = StartTurnRequest(session_id=session_id, user_message_id=appended.message_id)
        await client.turns.StartTurn(request)
    assert not (await _session(client, session_id)).HasField("archive_time")
    events = await _updates(client, session_id)
    [at] = [
        at
        for at, event in enumerate(events)
        if event.WhichOneof("kind") == "session_updated"
        and event.session_updated.session.title == "Titled"
        and not event.session_updated.session.HasField("archive_time")
    ]
    before = {"send": {"turn_started", "session_status_changed"}, "append": {"message_added"}}
    before["start"] = before["send"]
    assert events[at - 1].WhichOneof("kind") in before[way]


async def test_a_copy_is_not_archived(client: Client) -> None:
    """Archiving puts one session away, and not what is made of it; clearing does not bring it back."""
    accepted = await talk(client, "hello")
    await turn_ended(client, accepted)
    await client.sessions.ArchiveSession(session_id=accepted.session_id)
    await client.sessions.ClearSession(session_id=accepted.session_id)
    assert (await _session(client, accepted.session_id)).HasField("archive_time")
    fork = await client.sessions.ForkSession(session_id=accepted.session_id)
    assert not fork.session.HasField("archive_time")


async def test_lists_filter_and_order(client: Client) -> None:
    """Without a filter archived sessions are listed too; pages belong to filter and order."""
    made = []
    for title in ("b", "A", "c"):
        settings = SessionSettings(title=title, labels={"suite": "lists", "title": title})
        made.append((await client.sessions.CreateSession(settings=settings)).id)
    await client.sessions.ArchiveSession(session_id=made[1])

    async def listed(**fields: object) -> list[str]:
        found: list[str] = []
        token = ""
        while True:
            request = ListSessionsRequest(page_size=2, page_token=token, labels={"suite": "lists"}, **fields)  # type: ignore[arg-type]
            page = await client.sessions.ListSessions(request)
            found += [session.id for session in page.sessions]
            token = page.next_page_token
            if not token:
                return found

    assert await listed() == [made[1], made[2], made[0]]
    assert await listed(order=SESSION_ORDER_CREATED) == made[::-1]
    assert await listed(order=SESSION_ORDER_TITLE) == [made[1], made[0], made[2]]
    assert await listed(archived=False) == [made[2], made[0]]
    assert await listed(archived=True) == [made[1]]
    assert await listed(title_text="a") == [made[1]]
    assert await listed(directory="/nowhere") == []
    info = await _session(client, made[1])
    updated = datetime.fromtimestamp(info.time.updated / 1000, UTC)
    assert await listed(min_update_time=updated) == [made[1]]
    request = ListSessionsRequest(order=99, title_text="x" * 257, labels={str(n): "" for n in range(9)})  # type: ignore[arg-type]
    refusal = await refused(client.sessions.ListSessions(request))
    assert (refusal.code, sorted(refusal.fields)) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        ["labels", "order", "title_text"],
    )


@pytest.mark.parametrize("policy", [BUSY_POLICY_STEER, BUSY_POLICY_INTERRUPT])
async def test_a_message_acts_on_the_turn_that_was_seen(client: Client, policy: int) -> None:
    """Another running turn, or none, refuses it, and nothing is stored."""
    running = await client.messages.SendMessage(ask(FOREVER))
    session_id = running.session_id
    for expected in ("trn_other", "x"):
        request = ask("now", session_id, busy_policy=policy, expected_turn_id=expected)
        refusal = await refused(client.messages.SendMessage(request))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "TURN_NOT_RUNNING")
    assert [words_of(message) for message in await messages_of(client, session_id)][1:] in ([], [""])
    request = ask("now", session_id, busy_policy=BUSY_POLICY_INTERRUPT, expected_turn_id=running.turn_id)
    await turn_ended(client, await client.messages.SendMessage(request))
    late = await refused(client.messages.SendMessage(request))
    assert late.reason == "TURN_NOT_RUNNING"
    wrong = ask("now", session_id, busy_policy=BUSY_POLICY_QUEUE, expected_turn_id=running.turn_id)
    assert (await refused(client.messages.SendMessage(wrong))).fields == ["expected_turn_id"]


@pytest.mark.parametrize("format_name", ["turnwire", "opencode"])
async def test_an_archive_says_that_a_session_is_archived(client: Client, format_name: str) -> None:
    """A session that is exported, deleted and imported is archived since the same moment, and has its labels."""
    accepted = await talk(client, "hello")
    await client.sessions.UpdateSession(change_of(accepted.session_id, labels={"moved": "yes"}))
    archived = await client.sessions.ArchiveSession(session_id=accepted.session_id)
    data = await export(client, accepted.session_id, format=format_name)
    await client.sessions.DeleteSession(session_id=accepted.session_id)
    answers = await bring(client, data, format=format_name)
    [imported] = [one for answer in answers for one in answer.sessions]
    moved = await _session(client, imported.session_id)
    assert moved.archive_time.seconds == archived.session.archive_time.seconds
    request = ListSessionsRequest(archived=True, labels={"moved": "yes"})
    listed = [session.id for session in (await client.sessions.ListSessions(request)).sessions]
    assert (moved.id in listed) == (format_name == "turnwire")
