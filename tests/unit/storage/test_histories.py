"""Conversations in memory: what commits do to them, and which are dropped."""

from typing import get_args

import pytest

from tests.support.fakes.domain_values import NOW, make_message, make_turn
from turnwire.ports import commit
from turnwire.ports.commit import (
    Change,
    Commit,
    HideMessages,
    JoinSession,
    PublishSession,
    PutDraft,
    PutMessage,
    PutTurn,
    RemoveMessage,
    RemoveSession,
    SelectPath,
    ShowMessages,
)
from turnwire.storage import histories
from turnwire.storage.histories import History, HistoryCache, message_bytes

ONE, TWO, THREE = (make_message(f"msg_{n}", f"text {n}") for n in range(3))


def read(*messages: str) -> History:
    """Returns a history that was read."""
    history = History()
    history.is_rewritten = False
    history.begin("default", [(make_message(message_id, "x"), place) for place, message_id in enumerate(messages, 1)])
    return history


@pytest.mark.parametrize(
    ("change", "changed", "is_rewritten"),
    [
        (PutMessage(ONE), ["msg_0"], False),
        (PutTurn(make_turn()), [], False),
        (PutMessage(ONE, at_end=True), [], True),
        (PutMessage(ONE, is_hidden=True), [], True),
        (RemoveMessage("msg_0"), [], True),
        (HideMessages(""), [], True),
    ],
)
def test_what_a_commit_changes(change: Change, changed: list[str], is_rewritten: bool) -> None:
    """A stored message is read again; what may change more has all read again."""
    history = read()
    history.note(Commit(session_id="ses_1", at=NOW, changes=(change,)))
    assert (list(history.changed), history.is_rewritten) == (changed, is_rewritten)


def test_each_kind_of_change_was_thought_of() -> None:
    """A new one has all messages read again for each commit that has it, until it is known to leave them alone."""
    states = {PublishSession, JoinSession, RemoveSession}
    may_change = {PutMessage, PutDraft, RemoveMessage, HideMessages, ShowMessages, SelectPath, *states}
    assert set(get_args(commit.Change)) == {*get_args(histories.NO_MESSAGE), *may_change}


def test_very_many_changes_have_all_read_again() -> None:
    """So what is noted stays small while nobody reads."""
    history = read()
    for number in range(501):
        change = PutMessage(make_message(f"msg_{number}", "x"))
        history.note(Commit(session_id="ses_1", at=NOW, changes=(change,)))
    assert (list(history.changed), history.is_rewritten) == ([], True)


def test_a_changed_and_a_new_message_are_taken() -> None:
    """At its place and at the end."""
    history = read("msg_0", "msg_1")
    history.take(["msg_1", "msg_2"], [(TWO, 2), (THREE, 9)])
    assert (history.messages[1:], history.is_rewritten) == ([TWO, THREE], False)
    assert history.size_bytes == sum(map(message_bytes, history.messages))


@pytest.mark.parametrize("placed", [[(ONE, 3)], [(THREE, 1)], []])
def test_what_moved_or_left_has_all_read_again(placed: list[tuple[object, int]]) -> None:
    """Another place, a new message that is not the last one, one that is no part of the conversation any more."""
    history = read("msg_0", "msg_1")
    history.take(["msg_0"], placed)  # type: ignore[arg-type]
    assert history.is_rewritten


def test_histories_that_do_not_fit_are_dropped() -> None:
    """First the one that was used longest ago; none that is in use."""
    cache = HistoryCache(max_bytes=2 * message_bytes(ONE))
    used = [cache.use(f"ses_{n}") for n in range(3)]
    for number, history in enumerate(used):
        history.begin("default", [(ONE, 1)])
        cache.release(f"ses_{number}", history)
    assert cache.use("ses_1") is used[1]
    assert cache.use("ses_0") is not used[0]


def test_idle_histories_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """When another one was read."""
    cache = HistoryCache()
    history = cache.use("ses_1")
    history.begin("default", [(ONE, 1)])
    cache.release("ses_1", history)
    monkeypatch.setattr(histories, "IDLE_SECONDS", -1.0)
    other = cache.use("ses_2")
    other.begin("default", [])
    cache.release("ses_2", other)
    monkeypatch.undo()
    assert cache.use("ses_1") is not history


def test_histories_that_nobody_uses_are_dropped_at_once() -> None:
    """When memory is short; one that is being read goes on."""
    cache = HistoryCache()
    idle, used = cache.use("ses_1"), cache.use("ses_2")
    for history in (idle, used):
        history.begin("default", [(ONE, 1)])
    cache.release("ses_1", idle)
    cache.clear()
    assert cache.use("ses_1") is not idle
    assert cache.use("ses_2") is used


def test_the_history_of_a_removed_session_goes_with_it() -> None:
    """At once, or with the last use of it."""
    cache = HistoryCache()
    removal = [Commit(session_id="ses_1", at=NOW, changes=(RemoveSession(),))]
    for is_used in (False, True):
        history = cache.use("ses_1")
        history.begin("default", [(ONE, 1)])
        if is_used:
            cache.note_changed(removal)
        cache.release("ses_1", history)
        if not is_used:
            cache.note_changed(removal)
        assert (cache._size_bytes, cache._histories) == (0, {})
    cache.note_changed(removal)
