"""A session's title comes from its first message, with a mark that it did, until there is a better one."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from opencode.event.session_event_pb2 import SessionEvent
from opencode.message.content_pb2 import (
    MESSAGE_TYPE_ASSISTANT,
    MESSAGE_TYPE_HOST,
    MESSAGE_TYPE_SYSTEM,
    MESSAGE_TYPE_USER,
)
from opencode.message.message_pb2 import AppendMessageRequest
from opencode.session.session_pb2 import SESSION_ORDER_TITLE, ListSessionsRequest, SessionInfo
from opencode.turn.turn_service_pb2 import EditQueuedMessageRequest, RegenerateMessageRequest
from tests.support.clients.answers import append_answer, append_user, called, results_of
from tests.support.clients.archives import bring, export, records_in
from tests.support.clients.conversation import (
    ask,
    change_of,
    file,
    kinds,
    model,
    new_session,
    refused,
    session_of,
    talk,
    text,
    watching,
)
from tests.support.models.scripts import API_OF_PATH, Say, answer
from tests.support.servers.provider import ProviderServer, RecordedRequest, ScriptedReply
from tests.support.servers.running import Client, connect, running_server
from tests.support.servers.tenants import connect_as, server_of_tenants
from turnwire.domain.archive.records import ArchivedSession
from turnwire_client import Conversation

UNSEEN = "\u200b\u2060"
"""Words that nobody sees."""


async def told(client: Client, session_id: str) -> list[SessionEvent]:
    """Returns all events of a session; a client that folds them holds the title that the server shows."""
    held = Conversation(session_id)
    async with watching(client, session_id, after_sequence=0) as watch:
        await watch.until_kind("caught_up")
        events = [event for event in watch.events if event.sequence]
        for event in events:
            held.apply(event)
    shown = await session_of(client, session_id)
    assert held.session is not None
    assert title_of(held.session) == title_of(shown)
    assert shown.title_from_message == (not shown.settings.title and bool(shown.title))
    return events


def title_of(session: SessionInfo) -> tuple[str, bool]:
    """Returns the title, and whether a message gave it."""
    return session.title, session.title_from_message


async def titles(client: Client, session_id: str) -> list[str]:
    """Returns the titles that messages brought, in the order in which they were told."""
    events = await told(client, session_id)
    return [event.message_added.session_title for event in events if event.message_added.session_title]


async def append(client: Client, session_id: str, words: str, kind: int = MESSAGE_TYPE_USER, **fields: Any) -> str:
    """Stores a message without a turn."""
    request = AppendMessageRequest(session_id=session_id, type=kind, parts=[text(words)], **fields)
    return (await client.messages.AppendMessage(request)).message_id


async def test_a_message_that_is_sent_gives_the_title(client: Client) -> None:
    """Told with the message, and by no other event; further messages change nothing, and neither does the revision."""
    accepted = await talk(client, "\n\n  Plan the\ttrip  \nto Rome")
    events = await told(client, accepted.session_id)
    assert kinds(events)[:2] == ["session_created", "message_added"]
    assert title_of(events[0].session_created.session) == ("", False)
    assert events[1].message_added.session_title == "Plan the trip to Rome"
    await talk(client, "And to Paris", accepted.session_id)
    assert await titles(client, accepted.session_id) == ["Plan the trip to Rome"]
    assert "session_updated" not in kinds(await told(client, accepted.session_id))
    session = await session_of(client, accepted.session_id)
    assert (title_of(session), session.settings.title, session.revision) == (("Plan the trip to Rome", True), "", 1)


async def test_a_message_that_is_appended_gives_the_title(client: Client) -> None:
    """Only one of a user does: what models, hosts and systems say comes before it without becoming the title."""
    session_id = await new_session(client)
    for kind in (MESSAGE_TYPE_HOST, MESSAGE_TYPE_SYSTEM, MESSAGE_TYPE_ASSISTANT):
        await append(client, session_id, "Not this", kind)
    await append_answer(client, session_id, called("c1"))
    await client.messages.AppendMessage(results_of(session_id, ("c1", "nor this")))
    assert title_of(await session_of(client, session_id)) == ("", False)
    await append(client, session_id, "But this")
    await append(client, session_id, "and not that")
    assert await titles(client, session_id) == ["But this"]


@pytest.mark.parametrize("unseen", [UNSEEN, "\u3164", "\u202e\u202c"], ids=["zero width", "filler", "direction"])
async def test_words_that_nobody_sees_are_no_title(client: Client, unseen: str) -> None:
    """The next message with words gives it; one that is refused does not."""
    session_id = await new_session(client)
    await append(client, session_id, unseen)
    for empty in ("", " \n\t\u3000"):
        assert (await refused(append(client, session_id, empty))).reason == "INVALID_REQUEST"
    assert title_of(await session_of(client, session_id)) == ("", False)
    await talk(client, "Seen", session_id)
    assert await titles(client, session_id) == ["Seen"]


async def test_a_file_gives_its_name(client: Client) -> None:
    """Where a message has no words; a file without a name gives none."""
    session_id = await new_session(client)
    for name in ("", "plan\u202e.txt", "other.txt"):
        part = file(data=b"the plan", filename=name, mime="text/plain")
        request = AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_USER, parts=[part])
        await client.messages.AppendMessage(request)
    assert await titles(client, session_id) == ["plan.txt"]


@pytest.mark.parametrize("words", ["x" * 2**20, "word " * 2**18, "\U0001f468\u200d\U0001f469\u200d\U0001f467" * 5000])
async def test_a_long_message_gives_its_beginning(client: Client, words: str) -> None:
    """A line of at most 60 characters, and a list of sessions has no more of it."""
    session_id = await new_session(client)
    await append(client, session_id, words)
    [title] = await titles(client, session_id)
    assert 45 <= len(title) <= 60
    assert title.endswith("…")
    assert words.startswith(title[:-1])


async def test_a_title_that_was_set_counts_more(client: Client) -> None:
    """The words are noted all the same: they are shown when the title is unset, and a new title replaces them."""
    session_id = await new_session(client, title="Mine")
    await talk(client, "First words", session_id)
    assert await titles(client, session_id) == []
    assert title_of(await session_of(client, session_id)) == ("Mine", False)
    changed = (await client.sessions.UpdateSession(change_of(session_id, title=""))).session
    assert (title_of(changed), changed.settings.title) == (("First words", True), "")
    await talk(client, "Further words", session_id)
    assert await titles(client, session_id) == []
    changed = (await client.sessions.UpdateSession(change_of(session_id, title="Mine again"))).session
    assert title_of(changed) == ("Mine again", False)
    assert await titles(client, session_id) == []


@pytest.mark.slow
async def test_a_change_that_comes_between_keeps_the_words(client: Client) -> None:
    """A message and changes of other settings at once may come in any order."""
    for _ in range(10):
        session_id = await new_session(client)
        calls: list[Awaitable[Any]] = [
            client.sessions.UpdateSession(change_of(session_id, labels={"n": "1"})),
            client.messages.AppendMessage(session_id=session_id, type=MESSAGE_TYPE_USER, parts=[text("Words")]),
            client.sessions.ArchiveSession(session_id=session_id),
            client.sessions.UpdateSession(change_of(session_id, labels={"n": "2"})),
        ]
        await asyncio.gather(*calls)
        assert await titles(client, session_id) == ["Words"]
        assert title_of(await session_of(client, session_id)) == ("Words", True)


async def test_of_messages_at_once_the_first_gives_the_title(client: Client) -> None:
    """Which is the one that the conversation begins with."""
    session_id = await new_session(client)
    await asyncio.gather(*(append(client, session_id, f"Words {number}") for number in range(20)))
    events = [event.message_added for event in await told(client, session_id) if event.HasField("message_added")]
    assert [one.session_title for one in events] == [events[0].message.parts[0].text.text] + [""] * 19


async def test_a_message_that_is_sent_again_changes_nothing(client: Client) -> None:
    """It is stored once, also when the title was unset or another message came since."""
    session_id = await new_session(client)
    request = ask("Once", session_id, request_id=f"once {session_id}")
    first = await client.messages.SendMessage(request)
    await talk(client, "Another", session_id)
    again = await client.messages.SendMessage(request)
    assert again.message_id == first.message_id
    assert await titles(client, session_id) == ["Once"]


async def test_lists_and_searches_show_it(client: Client) -> None:
    """It is what a list is ordered and filtered by, as a title that was set, and a hit has it."""
    label = {"test": "first-words"}
    ids = [await new_session(client, labels=label) for _ in range(4)]
    await client.sessions.UpdateSession(change_of(ids[0], title="beta"))
    for session_id, words in zip(ids[1:3], ("Gamma wyvern", "ALPHA"), strict=True):
        await append(client, session_id, words)

    async def listed(**fields: Any) -> list[str]:
        request = ListSessionsRequest(labels=label, order=SESSION_ORDER_TITLE, **fields)
        return [one.id for one in (await client.sessions.ListSessions(request)).sessions]

    assert await listed() == [ids[3], ids[2], ids[0], ids[1]]
    assert await listed(title_text="alpha") == [ids[2]]
    [hit] = (await client.search.SearchMessages(query="wyvern")).hits
    assert hit.session_title == "Gamma wyvern"
    await client.sessions.UpdateSession(change_of(ids[1], title="Above all", labels=label))
    assert await listed() == [ids[3], ids[1], ids[2], ids[0]]
    await client.sessions.UpdateSession(change_of(ids[1], title=""))
    assert await listed(title_text="WYVERN") == [ids[1]]


async def test_what_happens_to_the_message_leaves_the_title(client: Client) -> None:
    """It may be answered again in another form, taken back, or hidden with all others."""
    accepted = await talk(client, "First words")
    session_id = accepted.session_id
    again = RegenerateMessageRequest(
        session_id=session_id, message_id=accepted.message_id, new_parts=[text("Edited words")]
    )
    started = await client.turns.RegenerateMessage(again)
    async with watching(client, session_id, after_sequence=0) as watch:
        await watch.until_turn_ended(started.turn.turn_id)
    await client.sessions.RevertSession(session_id=session_id, before_message_id=started.turn.user_message_id)
    await client.sessions.RestoreSession(session_id=session_id)
    await client.sessions.ClearSession(session_id=session_id)
    assert title_of(await session_of(client, session_id)) == ("First words", True)
    await talk(client, "Later words", session_id)
    assert await titles(client, session_id) == ["First words"]


@pytest.mark.slow
async def test_a_copy_has_the_title(client: Client) -> None:
    """As it is shown, and from its first event on; also a copy of many messages, and one with a title of its own."""
    session_id = await new_session(client)
    first = await append(client, session_id, "First words")
    short = (await client.sessions.ForkSession(session_id=session_id)).session
    for number in range(120):
        await append(client, session_id, f"Message {number}")
    long = (await client.sessions.ForkSession(session_id=session_id)).session
    part = (await client.sessions.ForkSession(session_id=session_id, through_message_id=first)).session
    for copy in (short, long, part):
        events = await told(client, copy.id)
        assert title_of(events[0].session_created.session) == title_of(copy) == ("First words", True)
        await talk(client, "Other words", copy.id)
        assert await titles(client, copy.id) == []
        assert title_of(await session_of(client, copy.id)) == ("First words", True)


async def test_an_archive_has_titles_that_were_set_alone(tmp_path: Path) -> None:
    """A session that is imported has the words of its own first message, hidden or not; a title that was set stays."""
    async with (
        server_of_tenants(tmp_path) as server,
        connect_as(server.address, "alice") as alice,
        connect_as(server.address, "bob") as bob,
    ):
        ids = [await new_session(alice), await new_session(alice, title="Mine"), await new_session(alice)]
        for session_id in ids[:2]:
            await append(alice, session_id, "A host", MESSAGE_TYPE_HOST)
            await append(alice, session_id, "First words")
            await append(alice, session_id, "Second words")
        await alice.sessions.ClearSession(session_id=ids[0])
        archive = await export(alice, *ids)
        sessions = [one.session for one in records_in(archive) if isinstance(one, ArchivedSession)]
        assert [session.title for session in sessions] == ["", "Mine", ""]
        assert b"first_words" not in archive
        forged = archive.replace(b'"session":{', b'"session":{"first_words":"Forged",')
        brought = [one for reply in await bring(bob, forged) for one in reply.sessions]
        shown = [await session_of(bob, one.session_id) for one in brought]
        assert [title_of(one) for one in shown] == [("First words", True), ("Mine", False), ("", False)]
        for one in brought:
            assert await titles(bob, one.session_id) == []
        unset = (await bob.sessions.UpdateSession(change_of(brought[1].session_id, title=""))).session
        assert title_of(unset) == ("First words", True)


QueueChange = Callable[[Client, str, str], Awaitable[Any]]
"""Changes a message that waits: client, session, message."""


async def _edit(client: Client, session_id: str, message_id: str) -> None:
    parts = [text("Edited")]
    request = EditQueuedMessageRequest(session_id=session_id, message_id=message_id, parts=parts)
    await client.turns.EditQueuedMessage(request)


async def _remove(client: Client, session_id: str, message_id: str) -> None:
    await client.turns.RemoveQueuedMessage(session_id=session_id, message_id=message_id)


@pytest.mark.slow
@pytest.mark.parametrize("change", [_edit, _remove])
async def test_a_message_that_waits_gives_the_title(tmp_path: Path, change: QueueChange) -> None:
    """As soon as it is stored, for good, also when it is another one before its turn, or none at all."""
    release = asyncio.Event()

    def reply(request: RecordedRequest) -> ScriptedReply:
        made = answer(API_OF_PATH[request.path], Say("Seen."))
        return ScriptedReply((release, *made.chunks))

    async with ProviderServer(reply) as provider:
        toml = f"[providers.mine]\nkind = 'openai_chat'\nbase_url = '{provider.base_url}'\n"
        async with running_server(tmp_path, toml) as server, connect(server.address) as client:
            mine = model("m", "mine")
            running = await client.messages.SendMessage(ask(UNSEEN, model=mine))
            session_id = running.session_id
            waiting = await client.messages.SendMessage(ask("Waits", session_id, model=mine))
            assert waiting.queue_position == 1
            assert await titles(client, session_id) == ["Waits"]
            await change(client, session_id, waiting.message_id)
            last = await client.messages.SendMessage(ask("Later", session_id, model=mine))
            assert title_of(await session_of(client, session_id)) == ("Waits", True)
            release.set()
            async with watching(client, session_id, after_sequence=0) as watch:
                await watch.until_turn_ended(last.turn_id)
            assert await titles(client, session_id) == ["Waits"]


async def test_a_message_that_is_answered_later_is_told_without_a_title(client: Client) -> None:
    """StartTurn tells of a stored message again: its session has the title already."""
    session_id = await new_session(client)
    first = await append_user(client, session_id, "First words")
    await append_user(client, session_id, "Second words")
    started = await client.turns.StartTurn(session_id=session_id, user_message_id=first)
    async with watching(client, session_id, after_sequence=0) as watch:
        await watch.until_turn_ended(started.turn.turn_id)
    assert kinds(await told(client, session_id)).count("message_added") == 4
    assert await titles(client, session_id) == ["First words"]
