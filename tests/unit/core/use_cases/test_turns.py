"""Places of the events of a turn, whatever has become of it."""

import msgspec

from tests.support.fakes.core import FakeStore, make_environment
from tests.support.fakes.domain_values import make_session, make_turn
from turnwire.core.turns.registry import Turns
from turnwire.core.use_cases.turns import TurnRecords, TurnWatch
from turnwire.core.watches.resume_tokens import ResumeTokens
from turnwire.core.watches.watch import WatchRequest
from turnwire.domain.conversation.turns import Turn, TurnStatus
from turnwire.domain.principal import BUILT_IN, DEFAULT_TENANT
from turnwire.ports.store import Standing

ENDED = make_turn("trn_1", status=TurnStatus.ENDED, start_sequence=5, end_sequence=9)


def _records(*turns: Turn) -> tuple[TurnRecords, FakeStore]:
    session = msgspec.structs.replace(make_session(), head_sequence=20)
    store = FakeStore(sessions_by_id={"ses_1": session}, unfinished=turns)
    environment = make_environment(store)
    return TurnRecords(environment, Turns(environment)), store


def _found(turn_id: str, after: int, *, has_begun: bool) -> TurnWatch:
    return TurnWatch(turn_id, has_begun, WatchRequest(session_id="ses_1", after=after, fail_if_compacted=True))


async def test_a_token_is_a_place_as_well() -> None:
    """It counts before a number. When its history is gone, the watch of the session says so."""
    records, store = _records(ENDED)
    token = ResumeTokens(store).give(DEFAULT_TENANT, "ses_1", 7)
    assert await records.watch(BUILT_IN, "ses_1", "trn_1", 1, token) == _found("trn_1", 7, has_begun=True)
    store.timeline = "1" * 16
    store.other_timelines = Standing.REPLACED
    lost = WatchRequest(session_id="ses_1", resume_token=token, fail_if_compacted=True)
    assert await records.watch(BUILT_IN, "ses_1", "trn_1", 1, token) == TurnWatch("trn_1", False, lost)
