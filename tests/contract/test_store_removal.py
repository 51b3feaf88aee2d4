"""Removing sessions: each is gone at once for all readers, and what it leaves goes in steps."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from tests.support.fakes.domain_values import (
    NOW,
    adding,
    creating,
    make_end,
    make_file,
    make_message,
    make_permission,
    make_question,
    make_session,
    make_turn,
    removing,
)
from tests.support.fakes.opened_store import OpenedStore, events_in, kinds_in, opened_store
from turnwire.domain.accounts import Account
from turnwire.domain.conversation.events import TurnEnded
from turnwire.domain.conversation.permissions import PermissionAnswer, PermissionChoice
from turnwire.domain.conversation.questions import QuestionAction, QuestionAnswer
from turnwire.domain.errors import SessionNotFound
from turnwire.domain.principal import BUILT_IN
from turnwire.ports.commit import (
    Commit,
    NewEvent,
    PublishSession,
    PutFile,
    PutPermission,
    PutQuestion,
    PutSession,
    PutTurn,
    RecordRequest,
    SessionState,
)
from turnwire.ports.pages import Page
from turnwire.storage.sql import states
from turnwire.storage.sql.housekeeping import Housekeeping

CALLER = BUILT_IN
KEPT, OWN = b"of both sessions", b"of the session that goes"
MESSAGES = 12


def _named(session_id: str, name: str) -> RecordRequest:
    return RecordRequest(CALLER, name, f"fingerprint of {session_id}", "{}")


async def _fill(opened: OpenedStore, session_id: str) -> None:
    """Stores a session with something of each kind."""
    turn = make_turn(f"trn_{session_id}", session_id=session_id, user_message_id=f"msg_{session_id}_0")
    ended = make_end(turn.turn_id, session_id=session_id, user_message_id=turn.user_message_id)
    assert isinstance(ended, TurnEnded)
    allowed = PermissionAnswer(PermissionChoice.ONCE)
    ids = {"session_id": session_id, "turn_id": turn.turn_id, "message_id": turn.user_message_id}
    await opened.store.commit(creating(session_id))
    for number in range(MESSAGES):
        content = KEPT if number % 2 else OWN
        message = make_message(
            f"msg_{session_id}_{number}",
            f"words {session_id}",
            make_file(content) if session_id == "ses_gone" or number % 2 else "no file",
            session_id=session_id,
        )
        files = (PutFile(make_file(content).sha256, content),) if number < 2 else ()
        if session_id == "ses_kept":
            files = (PutFile(make_file(KEPT).sha256, KEPT),)
        await opened.store.commit(adding(message, NOW, files, _named(session_id, f"{session_id} {number}")))
    changes = (
        PutTurn(ended.turn),
        PutPermission(make_permission(f"per_{session_id}", **ids, answer=allowed)),
        PutQuestion(make_question(f"que_{session_id}", **ids, answer=QuestionAnswer(QuestionAction.DECLINE))),
    )
    await opened.store.commit(
        Commit(session_id=session_id, at=NOW, changes=changes, events=(NewEvent(ended, turn.turn_id),))
    )


async def _remove(opened: OpenedStore) -> None:
    await opened.store.commit(removing("ses_gone"))


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "STEP_ROWS", 5)


@pytest.fixture
def _paused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is removed by itself."""
    monkeypatch.setattr(Housekeeping, "start", lambda _: None)


@pytest.mark.usefixtures("_paused")
async def test_a_session_is_gone_at_once(tmp_path: Path) -> None:
    """For readers by its id, lists, remembered requests and restarts; its last event is told."""
    async with opened_store(tmp_path) as opened:
        await _fill(opened, "ses_kept")
        before = opened.store.of("default").account(NOW)
        await _fill(opened, "ses_gone")
        await _remove(opened)
        tenant = opened.store.of("default")
        with pytest.raises(SessionNotFound):
            await tenant.session("ses_gone")
        with pytest.raises(SessionNotFound):
            await opened.store.commit(adding(make_message("msg_late", "late", session_id="ses_gone")))
        assert [one.session_id for one in (await tenant.sessions(Page(size=10))).sessions] == ["ses_kept"]
        assert await opened.store.request(CALLER, "ses_gone 0") is None
        assert await opened.store.request(CALLER, "ses_kept 0") is not None
        assert events_in([opened.published[-1].frame])[0].WhichOneof("kind") == "session_deleted"
        # who comes back reads the last event of it, and no other
        of_session = await tenant.session_events("ses_gone", 0, kinds=None)
        of_all = await tenant.log_events(opened.published[-1].event.position - 5, kinds=None)
        assert kinds_in(of_session.frames) == kinds_in(of_all.frames) == ["session_deleted"]
        # the name of a request is free, and belongs to the other session from now on
        record = Commit(session_id="ses_kept", at=NOW, changes=(_named("ses_kept", "ses_gone 0"),), events=())
        await opened.store.commit(record)
        assert await opened.store.request(CALLER, "ses_gone 0") is not None
        after = tenant.account(NOW)
        assert (after.sessions, after.stored_bytes - before.stored_bytes) == (1, len(OWN))  # files stay for a while
    opened.assert_sound()


async def test_what_it_leaves_goes_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over restarts between them; the file is sound after each, what others use stays, and nobody pays for the rest."""
    with monkeypatch.context() as paused:
        paused.setattr(Housekeeping, "start", lambda _: None)
        async with opened_store(tmp_path) as opened:
            await _fill(opened, "ses_kept")
            before = opened.store.of("default").account(NOW)
            await _fill(opened, "ses_gone")
            await _remove(opened)
        steps, is_more = 0, True
        while is_more:
            async with opened_store(tmp_path) as opened:
                is_more = await opened.store._removal.step()
                steps += is_more
            opened.assert_sound()
    async with opened_store(tmp_path) as opened:
        await opened.store.removals()
        assert opened.store.of("default").account(NOW) == before
        assert len(await opened.store.of("default").history("ses_kept")) == MESSAGES
    assert steps > MESSAGES // 5 + 4


@pytest.mark.slow
async def test_it_goes_by_itself_and_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next start removes what the one before has left, and what was imported in part."""
    with monkeypatch.context() as paused:
        paused.setattr(Housekeeping, "start", lambda _: None)
        async with opened_store(tmp_path) as opened:
            await _fill(opened, "ses_gone")
            await _remove(opened)
            begun = Commit(
                session_id="ses_part", state=SessionState.IMPORTING, at=NOW, changes=(PutSession(PART), UNUSED)
            )
            await opened.store.commit(begun)
    async with opened_store(tmp_path) as opened:
        await opened.store.removals()
        assert _rows(opened) == {"sessions": 0, "messages": 0, "turns": 0, "requests": 0, "files": 0, "events": 1}
        assert opened.store.of("default").account(NOW) == Account()
        await _fill(opened, "ses_kept")
        await opened.store.commit(removing("ses_kept"))
        await opened.store.removals()
        assert _rows(opened)["messages"] == 0
    opened.assert_sound()


@pytest.mark.slow
async def test_who_waits_does_not_wait_for_what_is_removed_later(tmp_path: Path) -> None:
    """Else an import would never begin beside a tenant that deletes sessions all the time."""
    async with opened_store(tmp_path) as opened:
        await _fill(opened, "ses_gone")
        for number in range(20):
            await opened.store.commit(creating(f"ses_{number}"))
        await _remove(opened)
        waiting = asyncio.ensure_future(opened.store.removals())
        for number in range(20):
            await opened.store.commit(removing(f"ses_{number}"))
            if waiting.done():
                break
        await waiting
        assert _rows(opened)["messages"] == 0


@pytest.mark.sqlite
async def test_unused_files_go_together(tmp_path: Path) -> None:
    """The commit that publishes a session has the same statements for ten as for one: each takes long in SQLite."""
    counts = list[int]()
    async with opened_store(tmp_path) as opened:
        for name, count in (("ses_one", 1), ("ses_ten", 10)):
            contents = [f"{name} {number}".encode() for number in range(count)]
            files = [PutFile(make_file(content).sha256, content) for content in contents]
            part = Commit(
                session_id=name, state=SessionState.IMPORTING, at=NOW, changes=(PutSession(make_session(name)), *files)
            )
            await opened.store.commit(part)
            statements = list[str]()
            await opened.store._writing.run(lambda db, seen: db.set_trace_callback(seen), statements.append)  # type: ignore[attr-defined]
            await opened.store.commit(msgspec.structs.replace(part, changes=(PublishSession(0, NOW),)))
            counts.append(len([one for one in statements if "DELETE FROM files" in one]))
        assert _rows(opened)["files"] == 0
    assert counts == [1, 1]


def _rows(opened: OpenedStore) -> dict[str, int]:
    with opened.database() as db:
        tables = ("sessions", "messages", "turns", "requests", "files", "events")
        return {table: db.rows(f"SELECT count(*) FROM {table}")[0][0] for table in tables}


PART = make_session("ses_part")
UNUSED = PutFile(make_file(b"came early").sha256, b"came early")
