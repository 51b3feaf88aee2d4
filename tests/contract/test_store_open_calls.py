"""Store: calls that clients may run, listed without reading conversations."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from tests.support.fakes.domain_values import NOW, adding, creating, later, make_answer, make_end, make_turn, removing
from tests.support.fakes.opened_store import OpenedStore, opened_store
from turnwire.domain.conversation.messages import Lease, Message, ToolStatus, ToolUse
from turnwire.domain.conversation.turns import TurnStatus
from turnwire.domain.principal import DEFAULT_TENANT
from turnwire.ports.commit import Commit, PutMessage, PutTurn, RemoveMessage
from turnwire.ports.pages import OpenCall, Page

LOOK = ToolUse(name="look", call_id="c1", input_json="{}", started_at=NOW)
ALL = frozenset[str]()


def _call(seconds: int, **fields: object) -> ToolUse:
    return msgspec.structs.replace(LOOK, started_at=later(seconds), **fields)


def _answer(name: str, *calls: ToolUse, session_id: str = "ses_1") -> Message:
    """Returns a message whose ids begin with its name."""
    message = make_answer(f"msg_{name}", *calls, session_id=session_id, turn_id=f"trn_{name}")
    parts = [msgspec.structs.replace(part, part_id=f"prt_{name}_{part.index}") for part in message.parts]
    return msgspec.structs.replace(message, parts=tuple(parts))


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[OpenedStore]:
    """A store with two sessions whose turns run: the second has the older call."""
    async with opened_store(tmp_path) as running:
        for session_id in ("ses_1", "ses_2"):
            await running.store.commit(creating(session_id))
        await _put(running, _answer("a", _call(5), _call(5, name="draw")))
        await _put(running, _answer("b", _call(1), session_id="ses_2"))
        yield running


async def _put(opened: OpenedStore, message: Message) -> None:
    turn = make_turn(message.turn_id, session_id=message.session_id, status=TurnStatus.RUNNING)
    await opened.store.commit(adding(message, NOW, (), PutTurn(turn)))


async def _replace(opened: OpenedStore, message: Message, index: int, **fields: object) -> Message:
    content = msgspec.structs.replace(message.parts[index].content, **fields)
    parts = list(message.parts)
    parts[index] = msgspec.structs.replace(parts[index], content=content)
    changed = msgspec.structs.replace(message, parts=tuple(parts))
    change = PutMessage(changed)
    await opened.store.commit(Commit(session_id=message.session_id, at=NOW, changes=(change,)))
    return changed


async def _listed(opened: OpenedStore, session_id: str = "", tools: frozenset[str] = ALL) -> list[str]:
    page = await opened.store.of(DEFAULT_TENANT).open_calls(session_id, tools, Page(size=100))
    return [call.part.part_id for call in page.calls]


async def test_calls_come_in_the_order_in_which_they_opened(opened: OpenedStore) -> None:
    """The order holds in all sessions, in one, and for some tools; calls of the same moment go by their ids."""
    assert await _listed(opened) == ["prt_b_0", "prt_a_0", "prt_a_1"]
    assert await _listed(opened, "ses_1") == ["prt_a_0", "prt_a_1"]
    assert await _listed(opened, tools=frozenset({"draw", "paint"})) == ["prt_a_1"]
    assert await _listed(opened, "ses_2", frozenset({"draw"})) == []


async def test_a_call_is_told_with_its_place_and_as_it_is(opened: OpenedStore) -> None:
    """With its lease, once it has one."""
    message = _answer("b", _call(1), session_id="ses_2")
    lease = Lease(lease_id="lse_1", holder="ann", expires_at=later(60))
    leased = await _replace(opened, message, 0, lease=lease)
    page = await opened.store.of(DEFAULT_TENANT).open_calls("ses_2", ALL, Page(size=1))
    assert page.calls == (OpenCall("ses_2", "msg_b", "trn_b", leased.parts[0]),)
    assert page.next_token == ""


@pytest.mark.parametrize(
    "fields",
    [
        *({"status": status} for status in ToolStatus if status is not ToolStatus.PENDING),
        {"permission_id": "per_1"},
        {"started_at": None},
        {"name": "fs.look"},
    ],
    ids=str,
)
async def test_a_call_that_no_client_may_run_is_not_listed(opened: OpenedStore, fields: dict[str, object]) -> None:
    """It comes back when it may again, such as with a permission."""
    message = _answer("b", _call(1), session_id="ses_2")
    other = await _replace(opened, message, 0, **fields)
    assert await _listed(opened) == ["prt_a_0", "prt_a_1"]
    await _replace(opened, other, 0, **_open_again(fields))
    assert await _listed(opened) == ["prt_b_0", "prt_a_0", "prt_a_1"]


def _open_again(fields: dict[str, object]) -> dict[str, object]:
    whole = {"status": ToolStatus.PENDING, "permission_id": "", "started_at": later(1), "name": "look"}
    return {name: whole[name] for name in fields}


async def test_calls_go_with_what_has_them(opened: OpenedStore) -> None:
    """Their message, their session; those of a turn that has ended without them are not listed."""
    await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(RemoveMessage("msg_a"),)))
    assert await _listed(opened) == ["prt_b_0"]
    await _put(opened, _answer("c", _call(7)))
    ended = make_end("trn_c").turn
    await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(PutTurn(ended),)))
    assert await _listed(opened) == ["prt_b_0"]
    await opened.store.commit(removing("ses_2"))
    assert await _listed(opened) == []


async def test_a_page_is_divided_by_bytes(opened: OpenedStore) -> None:
    """A line of a log has up to four for each of its characters."""
    logs = ("\U0001f600" * 500,) * 200
    await _put(opened, _answer("c", *(_call(9, logs=logs) for _ in range(12))))
    page = await opened.store.of(DEFAULT_TENANT).open_calls("", ALL, Page(size=100))
    assert len(page.calls) == 3 + 8
