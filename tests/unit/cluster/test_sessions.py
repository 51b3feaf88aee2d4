"""The sessions of a node's shards in memory."""

from collections.abc import Callable
from typing import Any

from tests.support.fakes.domain_values import make_session
from turnwire.cluster.sessions import NodeSessions
from turnwire.domain.principal import DEFAULT_TENANT
from turnwire.domain.shards import shard_of
from turnwire.storage.cache import SessionCache


async def test_settings_of_shards_that_are_taken_are_read_anew() -> None:
    """The earlier owner may have changed them since this node read them; those of other shards stay."""
    cache, is_known = SessionCache(), dict[str, bool]()
    for session_id in ("ses_taken", "ses_other"):
        cache.keep(make_session(session_id), cache.mark())

    class Turns:
        async def recover(self, is_mine: Callable[[str], bool]) -> None:
            for session_id in ("ses_taken", "ses_other"):
                assert is_mine(session_id) == (session_id == "ses_taken")
                is_known[session_id] = cache.get(DEFAULT_TENANT, session_id) is not None

    turns: Any = Turns()
    unused: Any = None
    sessions = NodeSessions(turns, unused, unused, unused, cache.forget)
    await sessions.recover(frozenset({shard_of("ses_taken")}))
    assert is_known == {"ses_taken": False, "ses_other": True}
