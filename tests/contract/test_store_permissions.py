"""Store: permission requests and what the turns of a session have spent."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from tests.support.fakes.domain_values import NOW, creating, later, make_permission, make_turn, removing
from tests.support.fakes.opened_store import OpenedStore, opened_store
from turnwire.domain.conversation.permissions import PermissionAnswer, PermissionChoice, PermissionRequest
from turnwire.domain.conversation.turns import TurnStatus
from turnwire.domain.errors import PermissionRequestNotFound, SessionNotFound
from turnwire.domain.money import Usage
from turnwire.domain.principal import DEFAULT_TENANT
from turnwire.ports.commit import Commit, PutPermission, PutTurn
from turnwire.ports.pages import Page
from turnwire.ports.store import Spent

ONE = make_permission("per_b", patterns=("fs.write", "fs.*"), call_id="call_1", metadata_json='{"path":"/a"}')
TWO = make_permission("per_a")
OTHER = make_permission("per_c", "ses_2")


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[OpenedStore]:
    """A store with two sessions that ask for three permissions."""
    async with opened_store(tmp_path) as running:
        for session_id in ("ses_1", "ses_2"):
            await running.store.commit(creating(session_id))
        for permission in (ONE, TWO, OTHER):
            await _put(running, permission)
        yield running


async def _put(opened: OpenedStore, permission: PermissionRequest) -> None:
    change = PutPermission(permission)
    await opened.store.commit(Commit(session_id=permission.session_id, at=NOW, changes=(change,)))


async def _open(opened: OpenedStore, session_id: str | None) -> tuple[PermissionRequest, ...]:
    return (await opened.store.of(DEFAULT_TENANT).open_permissions(session_id, Page())).permissions


async def _answer(opened: OpenedStore, permission: PermissionRequest, response: PermissionChoice) -> PermissionRequest:
    answered = msgspec.structs.replace(permission, answer=PermissionAnswer(response, "because"))
    await _put(opened, answered)
    return answered


async def test_open_requests_come_oldest_first(opened: OpenedStore) -> None:
    """A list has those of one session, or of all; the answered ones are not among them."""
    assert await _open(opened, "ses_1") == (ONE, TWO)
    assert await _open(opened, None) == (ONE, TWO, OTHER)
    await _answer(opened, ONE, PermissionChoice.REJECT)
    assert await _open(opened, "ses_1") == (TWO,)
    assert await _open(opened, None) == (TWO, OTHER)


async def test_a_request_is_read_open_and_answered(opened: OpenedStore) -> None:
    """With everything that it was stored with."""
    assert await opened.store.of(DEFAULT_TENANT).permission("ses_1", "per_b") == ONE
    answered = await _answer(opened, ONE, PermissionChoice.ONCE)
    assert await opened.store.of(DEFAULT_TENANT).permission("ses_1", "per_b") == answered


@pytest.mark.parametrize(
    ("session_id", "permission_id"), [("ses_1", "per_none"), ("ses_2", "per_b"), ("ses_none", "per_b"), ("", "")]
)
async def test_a_request_is_its_sessions(opened: OpenedStore, session_id: str, permission_id: str) -> None:
    """Another session does not find it; neither does one that is not there."""
    with pytest.raises(PermissionRequestNotFound):
        await opened.store.of(DEFAULT_TENANT).permission(session_id, permission_id)


async def test_what_was_allowed_for_the_session_is_remembered(opened: OpenedStore) -> None:
    """The patterns of all requests of the session that were answered with always, and of no others."""
    assert await opened.store.of(DEFAULT_TENANT).always_allowed("ses_1") == frozenset()
    await _answer(opened, ONE, PermissionChoice.ALWAYS)
    await _answer(opened, TWO, PermissionChoice.ONCE)
    await _answer(opened, OTHER, PermissionChoice.ALWAYS)
    await _answer(opened, make_permission("per_d", patterns=("fs.*", "web.get")), PermissionChoice.ALWAYS)
    await _answer(opened, make_permission("per_e", patterns=("rejected",)), PermissionChoice.REJECT)
    assert await opened.store.of(DEFAULT_TENANT).always_allowed("ses_1") == {"fs.write", "fs.*", "web.get"}
    assert await opened.store.of(DEFAULT_TENANT).always_allowed("ses_none") == frozenset()


async def test_requests_survive_a_restart(opened: OpenedStore, tmp_path: Path) -> None:
    """Open ones are open, answered ones keep their answer."""
    answered = await _answer(opened, TWO, PermissionChoice.ALWAYS)
    await opened.store.aclose()
    async with opened_store(tmp_path) as again:
        assert await _open(again, None) == (ONE, OTHER)
        assert await again.store.of(DEFAULT_TENANT).permission("ses_1", "per_a") == answered
        assert await again.store.of(DEFAULT_TENANT).always_allowed("ses_1") == set(TWO.patterns)


async def test_requests_go_with_their_session(opened: OpenedStore) -> None:
    """A deleted session asks for nothing and has allowed nothing."""
    await _answer(opened, ONE, PermissionChoice.ALWAYS)
    await opened.store.commit(removing("ses_1"))
    assert await _open(opened, None) == (OTHER,)
    assert await opened.store.of(DEFAULT_TENANT).always_allowed("ses_1") == frozenset()
    await opened.store.commit(creating("ses_1"))
    assert await _open(opened, "ses_1") == ()
    with pytest.raises(PermissionRequestNotFound):
        await opened.store.of(DEFAULT_TENANT).permission("ses_1", "per_a")


async def _end(opened: OpenedStore, turn_id: str, **fields: object) -> None:
    turn = make_turn(turn_id, **{"status": TurnStatus.ENDED, "ended_at": later(1), **fields})
    await opened.store.commit(Commit(session_id=turn.session_id, at=NOW, changes=(PutTurn(turn),)))


async def test_spent_is_the_sum_of_the_ended_turns(opened: OpenedStore) -> None:
    """Bucket by bucket; what runs or belongs to another session does not count."""
    assert await opened.store.of(DEFAULT_TENANT).spent("ses_1") == Spent(None, None)
    await _end(opened, "trn_1", usage=Usage(input_tokens=1, output_tokens=2), cost_pico_usd=30, system="long " * 100)
    await _end(opened, "trn_2", usage=Usage(input_tokens=10, cache_read_tokens=5), cost_pico_usd=400)
    await _end(opened, "trn_3", session_id="ses_2", usage=Usage(input_tokens=7), cost_pico_usd=7)
    await _end(opened, "trn_4", status=TurnStatus.RUNNING, usage=Usage(input_tokens=9), cost_pico_usd=9)
    assert await opened.store.of(DEFAULT_TENANT).spent("ses_1") == Spent(
        Usage(input_tokens=11, cache_read_tokens=5, output_tokens=2), 430
    )


async def test_an_unknown_price_hides_no_known_one(opened: OpenedStore) -> None:
    """The cost is that of the turns and steps whose price is known; tokens count all the same."""
    await _end(opened, "trn_1", usage=Usage(input_tokens=1))
    assert await opened.store.of(DEFAULT_TENANT).spent("ses_1") == Spent(Usage(input_tokens=1), None)
    await _end(opened, "trn_2", usage=Usage(input_tokens=2), cost_pico_usd=0)
    await _end(opened, "trn_3")
    assert await opened.store.of(DEFAULT_TENANT).spent("ses_1") == Spent(Usage(input_tokens=3), 0)
    await _end(opened, "trn_4", usage=Usage(input_tokens=1), known_cost_pico_usd=5)
    assert await opened.store.of(DEFAULT_TENANT).spent("ses_1") == Spent(Usage(input_tokens=4), 5)


async def test_spent_of_an_unknown_session_is_an_error(opened: OpenedStore) -> None:
    """As in every read of one session."""
    with pytest.raises(SessionNotFound):
        await opened.store.of(DEFAULT_TENANT).spent("ses_none")
