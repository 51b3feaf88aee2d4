"""Another tenant takes ids in advance: every id that a caller or an archive may choose, of every format."""

import asyncio
import hashlib
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.fakes.domain_values import (
    NOW,
    adding,
    creating,
    make_message,
    make_permission,
    make_question,
    make_session,
    make_turn,
    of_tenant,
    removing,
)
from tests.support.fakes.opened_store import events_in, opened_store
from tests.support.oracles.sound import assert_sound
from tests.support.servers.moving import MINE, OTHERS, Moving, Outcome, lines, until_clean
from tests.support.servers.squatter import ARCHIVES, KINDS, MARK, ROWS, ids_in, opened, prepared, squatting
from turnwire.domain.conversation.events import QueueChanged
from turnwire.domain.conversation.turns import TurnStatus
from turnwire.domain.errors import IdTaken, SessionNotFound
from turnwire.domain.searching.hits import Search
from turnwire.domain.searching.queries import parse_query
from turnwire.ports.commit import (
    Change,
    Commit,
    NewEvent,
    PublishSession,
    PutMessage,
    PutPermission,
    PutQuestion,
    PutSession,
    PutTurn,
    RemoveSession,
    SessionState,
)
from turnwire.ports.pages import Page


async def contents(here: Moving, outcome: Outcome) -> list[Any]:
    """Returns what the sessions of an import show to their tenant, without ids."""
    store, found = here.store.of("mine"), list[Any]()
    for one in outcome.sessions:
        session = await store.session(one.session_id)
        messages = (await store.messages(one.session_id, Page())).messages
        turns = (await store.turns(one.session_id, Page(), frozenset(TurnStatus))).turns
        assert {message.session_id for message in messages} <= {one.session_id}
        assert {message.turn_id for message in messages} - {""} <= {turn.turn_id for turn in turns}
        for message in messages:
            assert (await store.message(one.session_id, message.message_id)).message_id == message.message_id
        shown = [(m.type, [msgspec.structs.replace(p, part_id="", copied_id="") for p in m.parts]) for m in messages]
        for _, parts in shown:
            for index, part in enumerate(parts):
                if hasattr(part.content, "tool_call_id"):
                    content = msgspec.structs.replace(part.content, tool_call_id="")
                    parts[index] = msgspec.structs.replace(part, content=content)
        found.append((session.title, session.labels, len(turns), shown))
    return found


async def nothing_is_seen(here: Moving) -> None:
    """Checks that the other tenant has its own alone: in lists, in the log, in searches and exports."""
    store = here.store.of("others")
    sessions = (await store.sessions(Page())).sessions
    assert {session.title for session in sessions} <= {MARK}
    told = events_in((await store.log_events(0, None)).frames)
    assert {event.session_id for event in told} <= {session.session_id for session in sessions}
    with sqlite3.connect(here.path) as db:
        assert {one for (one,) in db.execute("SELECT DISTINCT tenant FROM events")} <= {"mine", "others"}
        owners = "SELECT count(*) FROM events JOIN sessions USING (session_id) WHERE events.tenant <> sessions.tenant"
        assert db.execute(owners).fetchone() == (0,)
    for word in ("deep", "a"):
        hits = (await store.search(Search(query=parse_query(word)), b"", 100)).hits
        assert {hit.session_id for hit in hits} <= {session.session_id for session in sessions}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", sorted(ARCHIVES))
async def test_ids_that_are_taken_in_advance_cost_nobody_a_row(tmp_path: Path, name: str, kind: str) -> None:
    """Those that an import would get, then those that it would get instead, and so on: all rows come, and stay over a
    restart; an import again finds them, the attacker sees nothing and keeps what he has.
    """
    archive, taken, wanted = ARCHIVES[name], {one: list[str]() for one in KINDS}, None
    for number in range(3):
        folder = tmp_path / f"{number}"
        await prepared(folder)
        async with opened(folder) as here:
            if taken[kind]:
                squatted = await here.bring(lines(squatting({kind: taken[kind]})), OTHERS)
                assert all(one.session_id == one.source_id for one in squatted.sessions)
            theirs = await here.archive(OTHERS)
            before = ids_in(here.path)
            outcome = await here.bring(archive, format=name)
            assert not [one for one in outcome.problems if one.reason in {"NOT_STORED", "IDS_TAKEN"}]
            assert not any(one.existed for one in outcome.sessions)
            found = await contents(here, outcome)
            wanted = wanted or found
            assert found == wanted
            mine = {one: sorted({*ids} - {*before[one]}) for one, ids in ids_in(here.path).items()}
            assert kind == "parts" or not {*mine[kind]} & {*taken[kind]}  # by a part's id alone, nothing is found
            await nothing_is_seen(here)
        assert_sound(here.path)
        async with opened(folder) as again:
            assert await contents(again, outcome) == wanted
            repeated = await again.bring(archive, format=name)
            assert [(one.session_id, one.existed) for one in repeated.sessions] == [
                (one.session_id, True) for one in outcome.sessions
            ]
            if mine[kind]:  # afterwards, too
                late = await again.bring(lines(squatting({kind: mine[kind]})), OTHERS)
                assert not any(one.session_id in mine["sessions"] for one in late.sessions)
            assert await contents(again, outcome) == wanted
            assert (await again.archive(OTHERS)).count(b'"kind":"session"') >= theirs.count(b'"kind":"session"')
            await nothing_is_seen(again)
        assert_sound(here.path)
        taken = {one: sorted({*taken[one], *mine[one]}) for one in KINDS}


async def test_imports_at_once_with_equal_ids_are_both_whole(tmp_path: Path) -> None:
    """The second one gets other ids, or is told that a session was left out and brings it later."""
    archive = ARCHIVES["turnwire"]
    await prepared(tmp_path / "s")
    async with opened(tmp_path / "s") as here:
        mine, theirs = await asyncio.gather(here.bring(archive), here.bring(archive, OTHERS))
        for principal, outcome in ((MINE, mine), (OTHERS, theirs)):
            assert outcome.problems == []
            for one in outcome.sessions:
                shown = (await here.store.of(principal.tenant).messages(one.session_id, Page())).messages
                assert shown
        assert not {one.session_id for one in mine.sessions} & {one.session_id for one in theirs.sessions}
    assert_sound(here.path)


@pytest.mark.matrix
@pytest.mark.parametrize("part", [1, 2, 3])
@pytest.mark.parametrize("kind", ["sessions", "messages", "turns"])
async def test_ids_that_are_taken_at_the_last_moment_cost_nobody_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, part: int
) -> None:
    """While a session is stored in parts: it gets other ids, and nothing is left of the first ones."""
    monkeypatch.setattr("turnwire.core.use_cases.moving.parts.PART_CHANGES", 2)
    name = "turnwire"
    await prepared(tmp_path / "s")
    async with opened(tmp_path / "s") as here:
        first = await here.bring(ARCHIVES[name], format=name)
        wanted, ids = await contents(here, first), ids_in(here.path)[kind]
    await prepared(tmp_path / "t")
    async with opened(tmp_path / "t") as here:
        real, parts = here.store.commit, 0
        squatter = await here.upload(lines(squatting({kind: [ids[-1]]})), OTHERS)
        last = first.sessions[-1].session_id

        def commit(unit: Any) -> Any:
            nonlocal parts
            parts += unit.session_id == last and unit.tenant == "mine"
            if parts != part or unit.session_id != last:
                return real(unit)
            parts += 1

            async def after() -> Any:
                await here.follow(OTHERS, upload_id=squatter)
                return await real(unit)

            return asyncio.ensure_future(after())

        monkeypatch.setattr(here.store, "commit", commit)
        upload_id = await here.upload(ARCHIVES[name])
        outcome = await here.follow(MINE, upload_id=upload_id, format=name, request_id="r")
        assert parts > part
        assert outcome.problems == []
        assert await contents(here, outcome) == wanted
        if part == 1 or kind == "messages":  # else the id was stored before it was taken
            assert [one.session_id == one.source_id for one in outcome.sessions] == [True, False]
        await until_clean(here.store)
        await nothing_is_seen(here)
    assert_sound(here.path)


@pytest.mark.slow
async def test_all_derived_ids_may_be_taken(tmp_path: Path) -> None:
    """Then a session gets one that was never seen before."""
    for number in range(6):
        await prepared(tmp_path / f"{number}")
    taken: list[str] = []
    for number in range(6):
        async with opened(tmp_path / f"{number}") as here:
            if taken:
                await here.bring(lines(squatting({"sessions": taken})), OTHERS)
            outcome = await here.bring(ROWS, format="openai")
            assert len(await contents(here, outcome)) == 2
            assert not {one.session_id for one in outcome.sessions} & {*taken}
            taken += [one.session_id for one in outcome.sessions]


async def test_nobody_computes_an_id_of_an_import(tmp_path: Path) -> None:
    """Two servers give one archive of one tenant different ids."""
    found = list[set[str]]()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        async with opened(tmp_path / name) as here:
            await here.bring(ROWS, format="openai")
            found.append({one for ids in ids_in(here.path).values() for one in ids})
    assert not found[0] & found[1]


async def test_what_earlier_versions_have_imported_is_found(tmp_path: Path) -> None:
    """Under the ids that they gave, which anybody could compute; of other formats only with their origin."""
    await prepared(tmp_path / "s")
    async with opened(tmp_path / "s") as here:
        outcome = await here.bring(ROWS, format="openai")
        former = _former("openai", "1")
        with sqlite3.connect(here.path) as db:
            db.execute(
                "UPDATE sessions SET session_id = ?1, body = json_set(body, '$.session_id', ?1) WHERE session_id = ?2",
                (former, outcome.sessions[0].session_id),
            )
        again = await here.bring(ROWS, format="openai")
        assert [(one.session_id, one.existed) for one in again.sessions] == [
            (former, True),
            (outcome.sessions[1].session_id, True),
        ]
        hostile = lines(squatting({"sessions": [_former("chatgpt", "x"), _former("openai", "2")]}))
        await here.bring(hostile)
        await until_clean(here.store)
        with sqlite3.connect(here.path) as db:
            db.execute("DELETE FROM sessions WHERE session_id = ?", (outcome.sessions[1].session_id,))
        last = await here.bring(ROWS, format="openai")
        assert [one.existed for one in last.sessions] == [True, False]


def _former(name: str, session_id: str) -> str:
    words = ("mine", name, session_id, "ses", session_id)
    return f"ses_{hashlib.sha256(chr(0).join(words).encode()).hexdigest()[:32]}"


def importing(session_id: str, *changes: Change, tenant: str = "default") -> Commit:
    """Returns a commit of a session that is stored in parts."""
    return Commit(tenant=tenant, session_id=session_id, state=SessionState.IMPORTING, at=NOW, changes=changes)


COMMITS: dict[str, tuple[Commit, type[Exception]]] = {
    "create": (creating("ses_theirs"), IdTaken),
    "import": (importing("ses_theirs", PutSession(make_session("ses_theirs"))), IdTaken),
    "import one that is imported": (
        importing("ses_theirs_in_parts", PutSession(make_session("ses_theirs_in_parts"))),
        IdTaken,
    ),
    "add to an import": (importing("ses_theirs_in_parts", PutTurn(make_turn("trn_new"))), SessionNotFound),
    "publish": (importing("ses_theirs_in_parts", PublishSession(1, NOW)), SessionNotFound),
    "give up": (importing("ses_theirs_in_parts", RemoveSession()), SessionNotFound),
    "import into a session": (importing("ses_mine", PutTurn(make_turn("trn_new", "ses_mine"))), SessionNotFound),
    "change one's own import": (
        Commit(session_id="ses_mine_in_parts", at=NOW, changes=(PutTurn(make_turn("trn_new")),)),
        SessionNotFound,
    ),
    "create for another tenant": (
        Commit(session_id="ses_new", at=NOW, changes=(PutSession(make_session("ses_new", tenant="other")),)),
        SessionNotFound,
    ),
    "change": (
        Commit(session_id="ses_theirs", at=NOW, changes=(PutSession(make_session("ses_theirs", revision=2)),)),
        SessionNotFound,
    ),
    "add": (adding(make_message("msg_new", "x", session_id="ses_theirs")), SessionNotFound),
    "tell": (Commit(session_id="ses_theirs", at=NOW, events=(NewEvent(QueueChanged(())),)), SessionNotFound),
    "remove": (removing("ses_theirs"), SessionNotFound),
    "message": (adding(make_message("msg_theirs", "x", session_id="ses_mine")), IdTaken),
    "message of an import": (adding(make_message("msg_in_parts", "x", session_id="ses_mine")), IdTaken),
    "turn": (Commit(session_id="ses_mine", at=NOW, changes=(PutTurn(make_turn("trn_theirs", "ses_mine")),)), IdTaken),
    "permission": (
        Commit(session_id="ses_mine", at=NOW, changes=(PutPermission(make_permission("per_theirs", "ses_mine")),)),
        IdTaken,
    ),
    "question": (
        Commit(session_id="ses_mine", at=NOW, changes=(PutQuestion(make_question("que_theirs", "ses_mine")),)),
        IdTaken,
    ),
}
"""What a commit of the tenant "default" may try with what another tenant has, and how it fails."""


def rows_in(path: Path) -> list[str]:
    """Returns all rows of a database."""
    with sqlite3.connect(path) as db:
        return list(db.iterdump())


@pytest.mark.parametrize("name", COMMITS)
async def test_a_commit_reaches_nothing_of_another_tenant(tmp_path: Path, name: str) -> None:
    """To it, the session of another tenant is not there, and no id of it is free. What fails changes nothing."""
    commit, error = COMMITS[name]
    turn = make_turn("trn_theirs", "ses_theirs", tenant="other")
    more = (
        PutTurn(turn),
        PutPermission(make_permission("per_theirs", "ses_theirs")),
        PutQuestion(make_question("que_theirs", "ses_theirs")),
    )
    theirs = make_session("ses_theirs", tenant="other")
    async with opened_store(tmp_path) as here:
        for unit in (
            creating("ses_mine"),
            Commit(tenant="other", session_id="ses_theirs", at=NOW, changes=(PutSession(theirs),)),
            of_tenant("other", adding(make_message("msg_theirs", "x", session_id="ses_theirs"), NOW, (), *more)),
            importing("ses_mine_in_parts", PutSession(make_session("ses_mine_in_parts"))),
            importing(
                "ses_theirs_in_parts",
                PutSession(make_session("ses_theirs_in_parts", tenant="other")),
                PutMessage(make_message("msg_in_parts", "x", session_id="ses_theirs_in_parts")),
                tenant="other",
            ),
        ):
            await here.store.commit(unit)
        before = rows_in(here.path)
        with pytest.raises(error) as refused:
            await here.store.commit(commit)
        assert type(refused.value) is error
        assert rows_in(here.path) == before
