"""A session that is stored in parts, as other servers see it."""

from tests.support.fakes.core import FakeStore, make_environment
from tests.support.fakes.domain_values import make_message, make_session
from turnwire.core.use_cases.moving.parts import SessionInParts
from turnwire.domain.shards import shard_of
from turnwire.ports.commit import PutMessage


async def test_parts_belong_to_the_owner_of_the_session_that_they_join() -> None:
    """So no other server takes one without the other, and removes the parts meanwhile."""
    store = FakeStore()
    for number in range(5):
        session = make_session(f"ses_old{number}")
        parts = SessionInParts(make_environment(store), session, joins=True)
        await parts.put([PutMessage(make_message())])
        stored = store.commits[-1].session_id
        assert stored != session.session_id
        assert shard_of(stored) == shard_of(session.session_id)
