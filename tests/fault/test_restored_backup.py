"""A database that is restored from a backup: nobody goes on with a conversation that is not there."""

import sqlite3
from contextlib import closing
from pathlib import Path

import grpc
import pytest

from opencode.event.event_pb2 import WatchEventsRequest
from opencode.event.session_event_pb2 import RESYNC_REASON_HISTORY_REPLACED
from opencode.message.message_pb2 import ListMessagesRequest
from tests.support.clients.conversation import kinds, messages_of, refused, talk, watching
from tests.support.oracles.fold import Fold, SessionFold, comparable
from tests.support.servers.process import server_process
from tests.support.servers.running import Client, connect

pytestmark = pytest.mark.slow


def _back_up(folder: Path) -> None:
    """As docs/operations.md says: one file, while the server runs."""
    with closing(sqlite3.connect(folder / "turnwire.db")) as db:
        db.execute("VACUUM INTO ?", (str(folder / "backup.db"),))


def _restore(folder: Path) -> None:
    """As docs/operations.md says: the file in the database's place, nothing beside it."""
    (folder / "backup.db").replace(folder / "turnwire.db")
    for beside in ("-wal", "-shm"):
        (folder / f"turnwire.db{beside}").unlink(missing_ok=True)


async def _seen(client: Client, session_id: str, **start: object) -> tuple[SessionFold | Fold, str]:
    """Returns what a client holds that has read until it caught up, and its newest token."""
    fold = SessionFold(session_id) if session_id else Fold()
    async with watching(client, session_id, **start) as watch:
        await watch.until_kind("caught_up")
    for event in watch.events:
        fold.apply(event)
    return fold, watch.token


async def test_a_client_that_saw_more_than_the_backup_reads_anew(tmp_path: Path) -> None:
    """Though its session has grown past what it saw: resync, and then what it folds is what is stored."""
    async with server_process(tmp_path) as server, connect(server.address) as client:
        session_id = (await talk(client, "before")).session_id
        tokens_before = {scope: (await _seen(client, scope, from_beginning=True))[1] for scope in (session_id, "")}
        _back_up(tmp_path)
        await talk(client, "lost", session_id)
        fold, token = await _seen(client, session_id, from_beginning=True)
        _, token_of_all = await _seen(client, "", from_beginning=True)
        await server.terminate()
    _restore(tmp_path)
    async with server_process(tmp_path) as server, connect(server.address) as client:
        for words in ("after", "and on", "and on"):
            await talk(client, words, session_id)
        async with watching(client, session_id, resume_token=token) as watch:
            await watch.until_kind("caught_up")
        assert kinds(watch.events)[0] == "resync"
        assert watch.events[0].resync.reason == RESYNC_REASON_HISTORY_REPLACED
        for event in watch.events:
            fold.apply(event)
        assert fold.messages == {}
        listed = await client.messages.ListMessages(ListMessagesRequest(session_id=session_id))
        fold = SessionFold(session_id, listed.sequence, listed.messages)
        await talk(client, "last", session_id)
        async with watching(client, session_id, fold, resume_token=listed.resume_token) as watch:
            await watch.until_kind("caught_up")
        assert comparable(fold.listed()) == comparable(await messages_of(client, session_id))

        async with watching(client, resume_token=token_of_all) as of_all:
            await of_all.until_kind("caught_up")
        assert (kinds(of_all.events)[0], of_all.events[0].session_id) == ("resync", "")
        for scope, late in ((session_id, token), ("", token_of_all)):
            request = WatchEventsRequest(session_id=scope, resume_token=late, fail_if_compacted=True)
            refusal = await refused(client.events.WatchEvents(request).read())
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.OUT_OF_RANGE, "EVENTS_COMPACTED")
            assert refusal.metadata == {"resyncReason": "HISTORY_REPLACED"}
        for scope, early in tokens_before.items():
            async with watching(client, scope, resume_token=early) as watch:
                await watch.until_kind("caught_up")
            assert "resync" not in kinds(watch.events)
            asked = [e.message_added.message for e in watch.events if e.HasField("message_added")]
            assert [m.parts[0].text.text for m in asked if m.parts] == ["after", "and on", "and on", "last"]


@pytest.mark.parametrize("killed", [False, True])
async def test_tokens_hold_over_restarts(tmp_path: Path, killed: bool) -> None:
    """Of an orderly stop and of a kill, twice in a row: the watch goes on behind what its holder has."""
    tokens: dict[str, str] = {}
    session_id = ""
    for number in range(3):
        async with server_process(tmp_path) as server, connect(server.address) as client:
            for scope, token in tokens.items():
                async with watching(client, scope, resume_token=token) as watch:
                    await watch.until_kind("caught_up")
                assert not [event for event in watch.events if event.sequence or event.HasField("resync")]
            session_id = (await talk(client, f"number {number}", session_id)).session_id
            for scope, token in tokens.items():
                async with watching(client, scope, resume_token=token) as watch:
                    await watch.until_kind("turn_ended")
                asked = await watch.until_kind("message_added")
                assert asked.message_added.message.parts[0].text.text == f"number {number}"
            async with watching(client, session_id, after_sequence=0) as idle:
                await idle.until(lambda event: event.HasField("session_status_changed"))
                await idle.until_kind("session_status_changed", 2 * (number + 1))
            tokens = {scope: (await _seen(client, scope, from_beginning=True))[1] for scope in (session_id, "")}
            await (server.kill() if killed else server.terminate())
