"""Databases that older servers wrote are opened, migrated and go on. See `tests.support.oracles.old_database`."""

import asyncio
import shutil
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from opencode.event.session_event_pb2 import RESYNC_REASON_PRUNED
from opencode.file.file_pb2 import DownloadFileRequest
from opencode.message.content_pb2 import (
    MESSAGE_STATUS_COMPLETE,
    MESSAGE_STATUS_INTERRUPTED,
    MESSAGE_TYPE_ASSISTANT,
    MESSAGE_TYPE_HOST,
    MESSAGE_TYPE_USER,
)
from opencode.message.message_pb2 import DISPOSITION_DUPLICATE, MessageList
from opencode.session.session_pb2 import SESSION_STATUS_IDLE, ListSessionsRequest
from opencode.turn.turn_pb2 import TURN_STATUS_ENDED
from opencode.turn.turn_service_pb2 import ListTurnsRequest
from tests.support.clients.conversation import ask, displayed, messages_of, talk, tool, turn_ended, watching, words_of
from tests.support.fakes.domain_values import NOW, removing
from tests.support.oracles import old_database as old
from tests.support.servers.running import connect, running_server
from turnwire.api.wire.codec import ProtoCodec
from turnwire.core.ending.closing import totals_of
from turnwire.domain.accounts import UsageDimension, UsageQuery, UsageRow
from turnwire.domain.conversation.messages import MessageStatus
from turnwire.domain.conversation.sessions import Budget
from turnwire.domain.conversation.turns import TurnStatus
from turnwire.domain.principal import DEFAULT_TENANT
from turnwire.ports.moving.uploads import Chunk
from turnwire.ports.pages import Page, PermissionPage
from turnwire.storage.sqlite.schema.migrations import MIGRATIONS
from turnwire.storage.sqlite.store import SqliteStore, StorageSettings
from turnwire.storage.sqlite.writing.writer import Other

DATABASES = sorted((Path(__file__).parent / "databases").glob("schema-*.sqlite"))


FRAMES_KEPT_SINCE = "schema-7"
"""The codec has changed since: events of older files are dropped, so who watched has to read anew."""


def test_every_schema_version_is_kept() -> None:
    """One file for each migration."""
    assert [database.stem for database in DATABASES] == [f"schema-{n}" for n in range(1, len(MIGRATIONS) + 1)]


@pytest.mark.parametrize("database", DATABASES, ids=lambda path: path.stem)
async def test_old_conversation_goes_on(database: Path, tmp_path: Path) -> None:
    """Everything is there, what was streaming is ended, what waited is answered, a retry is known, a new turn runs."""
    shutil.copy(database, tmp_path / "turnwire.db")
    async with running_server(tmp_path) as server, connect(server.address) as client:
        listed = (await client.sessions.ListSessions(ListSessionsRequest())).sessions
        [session] = [session for session in listed if session.title == "Old conversation"]
        if database.stem < FRAMES_KEPT_SINCE:
            async with watching(client, session.id, after_sequence=0) as watch:
                resync = (await watch.until_kind("resync")).resync
            assert resync.reason == RESYNC_REASON_PRUNED
        async with watching(client, session.id) as watch:
            await watch.until(
                lambda event: (
                    SESSION_STATUS_IDLE in (event.session_snapshot.session.status, event.session_status_changed.status)
                )
            )
        turns = (await client.turns.ListTurns(ListTurnsRequest(session_id=session.id))).turns
        assert [turn.status for turn in turns] == [TURN_STATUS_ENDED] * 6
        messages = await messages_of(client, session.id)
        assert [message.type for message in messages] == [
            *(MESSAGE_TYPE_USER, MESSAGE_TYPE_ASSISTANT),
            *(MESSAGE_TYPE_USER, MESSAGE_TYPE_ASSISTANT, MESSAGE_TYPE_ASSISTANT),
            *(MESSAGE_TYPE_USER, MESSAGE_TYPE_ASSISTANT) * 2,
            MESSAGE_TYPE_HOST,
            *(MESSAGE_TYPE_USER, MESSAGE_TYPE_ASSISTANT, MESSAGE_TYPE_HOST),
            *(MESSAGE_TYPE_USER, MESSAGE_TYPE_ASSISTANT),
        ]
        assert [message.previous_message_id for message in messages] == ["", *(m.message_id for m in messages[:-1])]
        assert [m.request_id for m in messages if m.request_id] == ["kept-request"]
        interrupted, waited = messages[11], messages[14]
        assert (words_of(interrupted), interrupted.status) == ("Streams.", MESSAGE_STATUS_INTERRUPTED)
        assert (words_of(waited), waited.status) == ("Waits.", MESSAGE_STATUS_COMPLETE)
        retry = ask("/refuse I will not.", session.id, request_id="kept-request", tools=[tool("known")])
        assert (await client.messages.SendMessage(retry)).disposition == DISPOSITION_DUPLICATE
        await turn_ended(client, await talk(client, "And now?", session.id))
        assert (await displayed(client, session.id))[-1].text_parts == ["And now?"]


@pytest.mark.parametrize("database", DATABASES, ids=lambda path: path.stem)
async def test_old_display_forms_are_those_of_today(database: Path, tmp_path: Path) -> None:
    """What is shown of them equals what this server makes of the messages, before and after it is stored anew."""
    shutil.copy(database, tmp_path / "turnwire.db")
    codec = ProtoCodec()
    store = await SqliteStore.open(StorageSettings(path=tmp_path / "turnwire.db"), codec, lambda _: None)
    try:
        assert store._reads.renewal.is_done == (database.stem >= FRAMES_KEPT_SINCE)
        for session in (await store.of(DEFAULT_TENANT).sessions(Page())).sessions:
            stored = MessageList.FromString(
                (await store.of(DEFAULT_TENANT).display(session.session_id, Page())).frames
            ).messages
            messages = (await store.of(DEFAULT_TENANT).messages(session.session_id, Page())).messages
            made = MessageList.FromString(b"".join(map(codec.encode_display, messages))).messages
            assert len(stored) >= 3
            assert list(stored) == list(made)
        while not store._reads.renewal.is_done:
            await asyncio.sleep(0.01)
        for session in (await store.of(DEFAULT_TENANT).sessions(Page())).sessions:
            messages = (await store.of(DEFAULT_TENANT).messages(session.session_id, Page())).messages
            frames = (await store.of(DEFAULT_TENANT).display(session.session_id, Page())).frames
            assert frames == b"".join(map(codec.encode_display, messages))
    finally:
        await store.aclose()


@pytest.mark.parametrize("database", DATABASES, ids=lambda path: path.stem)
async def test_what_was_used_before_counts(database: Path, tmp_path: Path) -> None:
    """The usage of each session is the sum of its ended answers, and its bytes are those of its parts."""
    shutil.copy(database, tmp_path / "turnwire.db")
    store = await SqliteStore.open(StorageSettings(path=tmp_path / "turnwire.db"), ProtoCodec(), lambda _: None)
    reads = store.of(DEFAULT_TENANT)
    ages = (datetime(2020, 1, 1, tzinfo=UTC), datetime(2120, 1, 1, tzinfo=UTC))
    query = UsageQuery(periods=(ages,), group_by=frozenset({UsageDimension.SESSION}))
    try:
        rows = {row.session_id: row for row in (await reads.usage(query, Page(size=100))).rows}
        sessions = (await reads.sessions(Page())).sessions
        assert reads.account(NOW).sessions == len(sessions)
        for session in sessions:
            messages = (await reads.messages(session.session_id, Page())).messages
            ended = [m for m in messages if m.model_run is not None and m.status is not MessageStatus.STREAMING]
            calls = [m if m.estimate is None else msgspec.structs.replace(m, usage=m.estimate.usage) for m in ended]
            turns = await reads.turns(session.session_id, Page(), frozenset({TurnStatus.ENDED}))
            row = rows.get(session.session_id, UsageRow(start=NOW))
            assert (row.usage, row.cost_pico_usd) == (totals_of(calls).usage, totals_of(calls).known_cost_pico_usd)
            assert (row.steps, row.turns) == (len(calls), len(turns.turns))
        assert sum(row.steps for row in rows.values()) > 0
    finally:
        await store.aclose()


@pytest.mark.parametrize("database", DATABASES[1:], ids=lambda path: path.stem)
async def test_old_approvals_are_there(database: Path, tmp_path: Path) -> None:
    """Permissions, open and answered, files of results, a summary, tools of the session: as they were stored."""
    shutil.copy(database, tmp_path / "turnwire.db")
    store = await SqliteStore.open(StorageSettings(path=tmp_path / "turnwire.db"), ProtoCodec(), lambda _: None)
    try:
        assert await store.of(DEFAULT_TENANT).open_permissions(None, Page()) == PermissionPage((old.OPEN,), "")
        assert await store.of(DEFAULT_TENANT).permission(old.APPROVALS, "per_answered") == old.ANSWERED
        assert await store.of(DEFAULT_TENANT).always_allowed(old.APPROVALS) == {"draw"}
        assert await store.of(DEFAULT_TENANT).history(old.APPROVALS) == old.IN_ORDER
        assert await store.of(DEFAULT_TENANT).message_of_call(old.APPROVALS, "prt_asks") == old.IN_ORDER[2]
        for file in old.FILES:
            assert await store.of(DEFAULT_TENANT).session_file(old.APPROVALS, file.sha256) == file.content
        session = await store.of(DEFAULT_TENANT).session(old.APPROVALS)
        assert (session.tools, session.budget) == (old.TURN.tools, Budget(max_tokens=9000))
        assert old.TURN.outline() in await store.unfinished_turns()
        assert await store.of(DEFAULT_TENANT).turn(old.APPROVALS, old.TURN.turn_id) == old.TURN
        await store.commit(removing(old.APPROVALS))
        assert await store.of(DEFAULT_TENANT).files(file.sha256 for file in old.FILES) == {}
        assert await store.of(DEFAULT_TENANT).open_permissions(None, Page()) == PermissionPage((), "")
    finally:
        await store.aclose()


@pytest.mark.parametrize("database", DATABASES[5:], ids=lambda path: path.stem)
async def test_old_upload_goes_on(database: Path, tmp_path: Path) -> None:
    """Where it was; its bytes count until it is removed."""
    shutil.copy(database, tmp_path / "turnwire.db")
    store = await SqliteStore.open(StorageSettings(path=tmp_path / "turnwire.db"), ProtoCodec(), lambda _: None)
    try:
        for work in store._steps:  # they free bytes of older events
            await work.aclose()
        await store._writer.carry_out(Other(lambda _db, _deltas: None))  # what they had begun is over
        before = store.of(DEFAULT_TENANT).account(NOW).stored_bytes
        more = Chunk(offset=len(old.UPLOADED), data=b" and more.", is_last=True)
        upload = await store.uploads.write(DEFAULT_TENANT, old.UPLOAD.upload_id, more, old.FAR)
        assert (upload.size_bytes, upload.received_bytes, upload.is_sealed) == (20, 20, True)
        pieces = [piece async for piece in store.uploads.pieces(DEFAULT_TENANT, old.UPLOAD.upload_id)]
        assert b"".join(pieces) == old.UPLOADED + b" and more."
        await store.uploads.remove(DEFAULT_TENANT, old.UPLOAD.upload_id)
        assert store.of(DEFAULT_TENANT).account(NOW).stored_bytes == before - len(old.UPLOADED)
    finally:
        await store.aclose()


@pytest.mark.parametrize("database", DATABASES[1:], ids=lambda path: path.stem)
async def test_old_approvals_are_shown(database: Path, tmp_path: Path) -> None:
    """To clients, with the result and its files, which can be downloaded."""
    shutil.copy(database, tmp_path / "turnwire.db")
    async with running_server(tmp_path) as server, connect(server.address) as client:
        question, summary, calls = (await displayed(client, old.APPROVALS))[:3]
        assert (question.text_parts, summary.compaction.through_message_id) == (["Draw."], question.message_id)
        drawn = calls.tool_calls[0]
        assert (drawn.output, drawn.full_output.sha256) == ("drawn", old.LOG.sha256)
        [plot] = drawn.files
        request = DownloadFileRequest(session_id=old.APPROVALS, sha256=plot.sha256)
        assert [answer.data async for answer in client.files.DownloadFile(request)] == [b"a plot"]
