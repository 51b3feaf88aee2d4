"""Sessions in memory: which are forgotten, and when one that was read is not kept."""

import pytest

from tests.support.fakes.domain_values import NOW, make_message, make_session
from turnwire.ports.commit import Change, Commit, PutMessage, PutSession, RemoveSession
from turnwire.storage.cache import SessionCache

SESSION = make_session()
MESSAGE = PutMessage(make_message("msg_1", "a"))


@pytest.mark.parametrize(
    ("changes", "is_kept"),
    [
        ((MESSAGE,), True),
        ((), True),
        ((PutSession(SESSION),), False),
        ((MESSAGE, PutSession(SESSION)), False),
        ((RemoveSession(),), False),
    ],
)
def test_a_session_is_kept_until_its_settings_change(changes: tuple[Change, ...], is_kept: bool) -> None:
    """So is one that was being read meanwhile: messages come all the time, and leave the settings alone."""
    cache = SessionCache()
    mark = cache.mark()
    cache.keep(SESSION, mark)
    cache.forget_changed([Commit(session_id=SESSION.session_id, at=NOW, changes=changes)])
    assert cache.get(SESSION.tenant, SESSION.session_id) == (SESSION if is_kept else None)
    other = make_session("ses_2")
    cache.keep(other, mark)
    assert cache.get(other.tenant, "ses_2") == (other if is_kept else None)


def test_a_session_is_that_of_its_tenant() -> None:
    """Another one does not get it."""
    cache = SessionCache()
    cache.keep(SESSION, cache.mark())
    assert cache.get("other", SESSION.session_id) is None
