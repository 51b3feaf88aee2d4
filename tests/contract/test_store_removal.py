"""Removing sessions: a large one is gone at once for all readers, and what it leaves goes in steps."""

from datetime import timedelta
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
    make_turn,
    removing,
)
from tests.support.fakes.opened_store import OpenedStore, events_in, kinds_in, opened_store
from tests.support.oracles.ledger import problems
from turnwire.domain.conversation.events import TurnEnded
from turnwire.domain.conversation.permissions import PermissionAnswer, PermissionChoice
from turnwire.domain.conversation.questions import QuestionAction, QuestionAnswer
from turnwire.domain.errors import SessionNotFound
from turnwire.domain.principal import BUILT_IN
from turnwire.ports.commit import (
    Commit,
    DropStaged,
    NewEvent,
    PutFile,
    PutPermission,
    PutQuestion,
    PutTurn,
    RecordRequest,
    RemoveMessage,
    RemoveSession,
)
from turnwire.ports.pages import Page
from turnwire.storage.sqlite.staging import removal

CALLER = BUILT_IN
STAGED = "stg_1"
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
    commit = msgspec.structs.replace(removing("ses_gone"), changes=(RemoveSession(STAGED),))
    assert (await opened.store.commit(commit)).is_unfinished


async def _drop(opened: OpenedStore) -> bool:
    """Carries out a step; returns whether more is left."""
    step = Commit(session_id=STAGED, at=NOW + timedelta(seconds=1), changes=(DropStaged(5),), events=())
    return (await opened.store.commit(step)).is_unfinished


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removal, "MAX_MESSAGES", MESSAGES - 1)


async def test_a_large_session_is_gone_at_once(tmp_path: Path) -> None:
    """For readers by its id, lists, remembered requests and restarts; its last event is told."""
    async with opened_store(tmp_path) as opened:
        await _fill(opened, "ses_kept")
        await _fill(opened, "ses_gone")
        await _remove(opened)
        tenant = opened.store.of("default")
        with pytest.raises(SessionNotFound):
            await tenant.session("ses_gone")
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
    assert problems(tmp_path / "turnwire.db") == []


@pytest.mark.parametrize(("bound", "is_large"), [("", False), ("MAX_EVENTS", True), ("MAX_BYTES", True)])
async def test_a_small_session_is_removed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, is_large: bool
) -> None:
    """Small is what has few messages, few events and few bytes; its files count too."""
    monkeypatch.setattr(removal, "MAX_MESSAGES", MESSAGES)
    if bound:
        monkeypatch.setattr(removal, bound, {"MAX_EVENTS": MESSAGES, "MAX_BYTES": 100_000}[bound])
    large = b"x" * 100_001
    async with opened_store(tmp_path) as opened:
        await _fill(opened, "ses_gone")
        files = (PutFile(make_file(large).sha256, large),)
        message = make_message("msg_file", make_file(large), session_id="ses_gone")
        await opened.store.commit(adding(message, NOW, files))
        taken = (RemoveMessage("msg_ses_gone_11"),)
        await opened.store.commit(Commit(session_id="ses_gone", at=NOW, changes=taken, events=()))
        commit = msgspec.structs.replace(removing("ses_gone"), changes=(RemoveSession(STAGED),))
        assert (await opened.store.commit(commit)).is_unfinished == is_large
        assert await opened.store.staged_sessions() == ((("default", STAGED),) if is_large else ())
    assert problems(tmp_path / "turnwire.db") == []


async def test_what_it_leaves_goes_in_steps(tmp_path: Path) -> None:
    """Over restarts between them; the file is sound after each, what others use stays, and nobody pays for the rest."""
    async with opened_store(tmp_path) as opened:
        await _fill(opened, "ses_kept")
        before = opened.store.of("default").account(NOW)
        await _fill(opened, "ses_gone")
        await _remove(opened)
    is_more, steps = True, 0
    while is_more:
        async with opened_store(tmp_path) as opened:
            assert await opened.store.staged_sessions() == (("default", STAGED),)
            is_more = await _drop(opened)
            steps += 1
        assert problems(tmp_path / "turnwire.db") == []
    async with opened_store(tmp_path) as opened:
        assert await opened.store.staged_sessions() == ()
        assert opened.store.of("default").account(NOW) == before
        assert len(await opened.store.of("default").history("ses_kept")) == MESSAGES
    assert steps > MESSAGES // 5 + 4
