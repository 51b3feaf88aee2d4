"""Small answers that nobody reads."""

import pytest

from turnwire.api.bounds import unread as unread_module
from turnwire.api.bounds.peers import Resets
from turnwire.api.bounds.unread import CALL_BYTES, Unread
from turnwire.domain.errors import TooManyCalls

MAX = 10 * CALL_BYTES


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Connections that were cut off, in their order."""
    cut = list[str]()
    monkeypatch.setattr(unread_module, "MAX_SMALL_BYTES", MAX)
    monkeypatch.setattr(Resets, "cut_off", lambda _, connection, __: cut.append(connection))
    return cut


def test_who_has_the_oldest_is_cut_off(cut: list[str]) -> None:
    """Once, whatever the connection has; one that was read counts no more."""
    unread = Unread(Resets())
    read = unread.keep(1, "quick")
    for _ in range(6):
        unread.keep(1, "deaf")
    for _ in range(3):
        unread.keep(1, "other")
    assert (cut, unread.bytes) == ([], MAX)
    read()
    read()
    unread.keep(1, "quick")
    assert cut == []
    unread.keep(1, "quick")
    assert cut == ["deaf"]
    for _ in range(5):
        unread.keep(1, "quick")
    assert cut == ["deaf"]


def test_an_answer_counts_as_its_call_or_as_its_bytes(cut: list[str]) -> None:
    """Whichever is more."""
    unread = Unread(Resets())
    unread.keep(CALL_BYTES - 1, "one")
    forget = unread.keep(2 * CALL_BYTES, "one")
    assert unread.bytes == 3 * CALL_BYTES
    forget()
    assert unread.bytes == CALL_BYTES


def test_where_nobody_can_be_cut_off_checks_are_refused(cut: list[str]) -> None:
    """All of a Unix socket have one name, and none of them is closed."""
    unread = Unread(Resets())
    kept = []
    for _ in range(20):
        unread.check()
        kept.append(unread.keep(1, "unix:"))
    with pytest.raises(TooManyCalls) as refused:
        unread.check()
    assert refused.value.metadata == {"limit": "MAX_SMALL_BYTES", "limitValue": str(MAX)}
    for forget in kept:
        forget()
    assert unread.bytes == 0
    unread.check()
