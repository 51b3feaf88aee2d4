"""Databases that older servers wrote are opened, migrated and go on. See `tests.support.old_database`."""

import shutil
from pathlib import Path

import pytest

from opencode.message.content_pb2 import (
    MESSAGE_STATUS_COMPLETE,
    MESSAGE_STATUS_INTERRUPTED,
    MESSAGE_TYPE_ASSISTANT,
    MESSAGE_TYPE_HOST,
    MESSAGE_TYPE_USER,
)
from opencode.message.message_pb2 import DISPOSITION_DUPLICATE, MessageList
from opencode.session.session_pb2 import ListSessionsRequest
from tests.support.conversation import ask, displayed, messages_of, talk, tool, turn_ended, watching, words_of
from tests.support.running_server import connect, running_server
from turnwire.ports.store import Page
from turnwire.rpc.codec import ProtoCodec
from turnwire.storage.schema import MIGRATIONS
from turnwire.storage.sqlite_store import SqliteStore, StorageSettings

DATABASES = sorted((Path(__file__).parent / "databases").glob("schema-*.sqlite"))


def test_every_schema_version_is_kept() -> None:
    """One file for each migration."""
    assert [database.stem for database in DATABASES] == [f"schema-{n}" for n in range(1, len(MIGRATIONS) + 1)]


@pytest.mark.parametrize("database", DATABASES, ids=lambda path: path.stem)
async def test_old_conversation_goes_on(database: Path, tmp_path: Path) -> None:
    """Everything is there, what was streaming is ended, what waited is answered, a retry is known, a new turn runs."""
    shutil.copy(database, tmp_path / "turnwire.db")
    async with running_server(tmp_path) as server, connect(server.address) as client:
        [session] = (await client.sessions.ListSessions(ListSessionsRequest())).sessions
        assert session.title == "Old conversation"
        async with watching(client, session.id, after_sequence=0) as watch:
            await watch.until_kind("turn_ended", 6)
        messages = await messages_of(client, session.id)
        assert [message.type for message in messages] == [
            *(MESSAGE_TYPE_USER, MESSAGE_TYPE_ASSISTANT),
            *(MESSAGE_TYPE_USER, MESSAGE_TYPE_ASSISTANT, MESSAGE_TYPE_ASSISTANT),
            *(MESSAGE_TYPE_USER, MESSAGE_TYPE_ASSISTANT) * 2,
            MESSAGE_TYPE_HOST,
            *(MESSAGE_TYPE_USER, MESSAGE_TYPE_ASSISTANT) * 2,
        ]
        interrupted, waited = messages[11], messages[13]
        assert (words_of(interrupted), interrupted.status) == ("Streams.", MESSAGE_STATUS_INTERRUPTED)
        assert (words_of(waited), waited.status) == ("Waits.", MESSAGE_STATUS_COMPLETE)
        retry = ask("/refuse I will not.", session.id, request_id="kept-request", tools=[tool("known")])
        assert (await client.messages.SendMessage(retry)).disposition == DISPOSITION_DUPLICATE
        await turn_ended(client, await talk(client, "And now?", session.id))
        assert (await displayed(client, session.id))[-1].text_parts == ["And now?"]


@pytest.mark.parametrize("database", DATABASES, ids=lambda path: path.stem)
async def test_old_display_forms_are_those_of_today(database: Path, tmp_path: Path) -> None:
    """What an older server stored for user interfaces equals what this one would make of the messages."""
    shutil.copy(database, tmp_path / "turnwire.db")
    codec = ProtoCodec()
    store = await SqliteStore.open(StorageSettings(path=tmp_path / "turnwire.db"), codec, lambda _: None)
    try:
        [session] = (await store.sessions(Page())).sessions
        stored = MessageList.FromString((await store.display(session.session_id, Page())).frames).messages
        messages = (await store.messages(session.session_id, Page())).messages
        made = MessageList.FromString(b"".join(map(codec.encode_display, messages))).messages
        assert list(stored) == list(made)
    finally:
        await store.aclose()
