"""Imports of sources that have grown: what came since is added, as a whole or not at all."""

import asyncio
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import pytest

from tests.support.fakes.domain_values import NOW, make_message, make_part, make_turn, put
from tests.support.fakes.opened_store import events_in
from tests.support.oracles.archives import golden_records, real_id
from tests.support.oracles.golden_history import HISTORY
from tests.support.oracles.sound import assert_sound
from tests.support.servers.moving import MINE, OTHERS, Moving, Outcome, dies_at, lines, moving, small_parts
from tests.support.servers.squatter import ARCHIVES, ids_in, prepared, squatting
from tests.support.servers.squatter import opened as opened_with_formats
from turnwire.core.settings import CoreSettings, QuotaLimits
from turnwire.core.use_cases.moving.progress import ImportOutcome
from turnwire.domain.archive.records import (
    ArchivedFile,
    ArchivedMessage,
    ArchivedSession,
    ArchivedTurn,
    ImportProblem,
    Record,
    SessionEnd,
)
from turnwire.domain.conversation.events import ConversationChange, ConversationChanged
from turnwire.domain.conversation.messages import Branch, ModelRef, Text
from turnwire.domain.conversation.turns import TurnStatus
from turnwire.domain.searching.hits import Search
from turnwire.domain.searching.queries import parse_query
from turnwire.interop.archive.bounds import ArchiveLimits
from turnwire.interop.archives import READERS
from turnwire.ports.commit import Commit, HideMessages, NewEvent, PutMessage, PutTurn
from turnwire.ports.moving.archives import ArchiveFormat
from turnwire.ports.pages import Page

CREATED, ADDED, UNCHANGED, DIFFERS = ImportOutcome
SESSION = real_id("ses", "golden")
WHOLE = golden_records("golden", HISTORY[:12])
COUNT = 12
MODEL = ModelRef("offline", "echo")


def beginning(records: Sequence[Record | ImportProblem], count: int) -> list[Record]:
    """Returns the first messages of each session, with what they need."""
    found, messages = list[Record](), 0
    for record in records:
        if isinstance(record, ImportProblem):
            continue
        if isinstance(record, ArchivedSession):
            messages = 0
        if isinstance(record, SessionEnd):
            while isinstance(found[-1], ArchivedFile):  # of a message that is cut off
                found.pop()
            found.append(SessionEnd(min(count, messages)))
            continue
        messages += isinstance(record, ArchivedMessage)
        if messages <= count and not (count == 0 and isinstance(record, ArchivedTurn)):
            found.append(record)
    return found


def told(outcome: Outcome) -> list[tuple[ImportOutcome, int, int]]:
    """Returns what became of each session: its outcome, and how many messages were added and are missing."""
    return [(one.outcome, one.added_messages, one.missing_messages) for one in outcome.sessions]


@pytest.mark.matrix
@pytest.mark.parametrize("is_small", [False, True])
@pytest.mark.parametrize("count", [0, 1, 5, 10, COUNT - 1])
@pytest.mark.parametrize("principal", [MINE, OTHERS])
async def test_what_came_since_is_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, principal: Any, count: int, is_small: bool
) -> None:
    """The session is as if it had been imported at once, under the ids of the archive or others."""
    if is_small:
        small_parts(monkeypatch)
    async with moving(tmp_path) as here:
        if principal is OTHERS:
            await here.bring(lines(WHOLE))
        first = await here.bring(lines(beginning(WHOLE, count)), principal)
        assert told(first) == [(CREATED, count, 0)]
        session_id = first.sessions[0].session_id
        assert (session_id == SESSION) == (principal is MINE)
        store = here.store.of(principal.tenant)
        before = await store.history(session_id)
        again = await here.bring(lines(WHOLE), principal)
        assert told(again) == [(ADDED, COUNT - count, 0)]
        assert (again.problems, again.last.incomplete_count) == ([], 0)
        assert again.sessions[0].session_id == session_id
        for _ in range(2):
            same = await here.bring(lines(WHOLE), principal)
            assert told(same) == [(UNCHANGED, 0, 0)]
        if principal is MINE:
            assert await here.archive() == lines(WHOLE)
        after = await store.history(session_id)
        assert after[: len(before)] == before
        created, _, changed = events_in((await store.session_events(session_id, 0, None)).frames)
        assert created.session_created.session.id == session_id
        told_change = changed.conversation_changed
        assert (told_change.change, told_change.reread) == (6, True)
        assert told_change.kept_through_message_id == (before[-1].message_id if before else "")
        listed = (await store.messages(session_id, Page())).messages
        shown = [one.message_id for one in listed]
        assert [one.previous_message_id for one in listed] == ["", *shown[:-1]]
        hits = (await store.search(Search(query=parse_query("a")), b"", 1000)).hits
        account = store.account(NOW)
    async with moving(tmp_path) as reopened:
        assert reopened.store.of(principal.tenant).account(NOW) == account
    assert_sound(here.path)
    (tmp_path / "at once").mkdir()
    async with moving(tmp_path / "at once") as other:
        await other.bring(lines(WHOLE))
        found = (await other.store.of("mine").search(Search(query=parse_query("a")), b"", 1000)).hits
        assert len(found) == len(hits) > 0
        if principal is MINE:  # one event more
            assert 0 < account.stored_bytes - other.store.of("mine").account(NOW).stored_bytes < 200


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(ARCHIVES))
async def test_every_format_goes_on(tmp_path: Path, name: str) -> None:
    """The same archive again is unchanged, and one whose sessions have more messages adds these."""
    reader = Cut(name)
    await prepared(tmp_path / "s")
    async with moving(tmp_path / "s", cut=ArchiveFormat(reader)) as here:
        for count in (1, 1, 2, 1000, 1000):
            before, reader.count = reader.messages, count
            reader.messages = 0
            outcome = await here.bring(ARCHIVES[name], format="cut")
            stored = reader.messages
            assert sum(one.added_messages for one in outcome.sessions) == stored - before
            wanted = {CREATED} if not before else {ADDED, UNCHANGED} if stored > before else {UNCHANGED}
            assert {one.outcome for one in outcome.sessions} <= wanted
            checked = await here.bring(ARCHIVES[name], format="cut", verify=True)
            assert checked.last.incomplete_count == 0
        found = await contents(here, outcome)
    assert_sound(here.path)
    await prepared(tmp_path / "t")
    async with opened_with_formats(tmp_path / "t") as here:
        assert await contents(here, await here.bring(ARCHIVES[name], format=name)) == found


class Cut:
    """Reads the first messages of each session of an archive."""

    def __init__(self, name: str) -> None:
        """Takes the name of the format."""
        own = name == "turnwire"
        self._reader: Any = None if own else READERS[name](lambda: NOW.replace(hour=next(HOURS)), ArchiveLimits())
        self.keeps_ids = False
        self.count = 0
        self.messages = 0
        """How many the last reading had, of all sessions."""

    def read(self, source: BinaryIO, options: Mapping[str, str]) -> Iterator[Record | ImportProblem]:
        """Yields the records."""
        records = list(self._reader.read(source, options)) if self._reader else ARCHIVED
        found = beginning(records, self.count)
        self.messages = sum(isinstance(one, ArchivedMessage) for one in found)
        yield from found


HOURS = itertools.cycle(range(24))
"""Formats without times take the time of the import."""
ARCHIVED = [*golden_records("a", HISTORY[:9]), *golden_records("b", HISTORY[9:15])]


async def contents(here: Moving, outcome: Outcome) -> list[Any]:
    """Returns what the sessions of an import show."""
    found = list[Any]()
    for one in outcome.sessions:
        messages = (await here.store.of("mine").messages(one.session_id, Page())).messages
        parts = [part for message in messages for part in message.parts]
        found.append((len(messages), [part.content for part in parts if isinstance(part.content, Text)]))
    return found


async def appended(here: Moving, words: str = "here") -> None:
    """Appends a message on the server."""
    part = make_part(0, Text(words), part_id=real_id("prt", words))
    message = make_message(real_id("msg", words), part, session_id=SESSION)
    changed = NewEvent(ConversationChanged(ConversationChange.IMPORTED, None, reread=True))
    await here.store.commit(
        Commit(tenant="mine", session_id=SESSION, at=NOW, changes=(put(message),), events=(changed,))
    )


@pytest.mark.parametrize(("count", "missing"), [(5, 0), (COUNT, 7)])
async def test_a_session_that_was_continued_here_differs(tmp_path: Path, count: int, missing: int) -> None:
    """Nothing is stored for it; what the archive has and the server has not is told."""
    async with moving(tmp_path) as here:
        await here.bring(lines(beginning(WHOLE, 5)))
        await appended(here)
        before, account = await here.archive(), here.store.of("mine").account(NOW)
        for fields in ({}, {"dry_run": True}, {"verify": True}):
            outcome = await here.bring(lines(beginning(WHOLE, count)), **fields)
            assert told(outcome) == [(DIFFERS, 0, missing)]
            assert [one.reason for one in outcome.problems] == ["DIFFERS"] * bool(missing)
            assert outcome.last.incomplete_count == bool(missing)
        assert await here.archive() == before
        await here.store.removals()
        assert account.sessions == here.store.of("mine").account(NOW).sessions == 1
    assert_sound(here.path)


@pytest.mark.parametrize("place", [0, 3, 9])
async def test_a_message_that_was_changed_differs(tmp_path: Path, place: int) -> None:
    """In the source, or here, as by taking it back. The first one is named."""
    async with moving(tmp_path) as here:
        await here.bring(lines(beginning(WHOLE, 10)))
        messages = [number for number, one in enumerate(WHOLE) if isinstance(one, ArchivedMessage)]
        records, at = list(WHOLE), messages[place]
        old = records[at]
        assert isinstance(old, ArchivedMessage)
        changed = msgspec.structs.replace(old.message, metadata_json='{"edited":1}')
        records[at] = ArchivedMessage(changed, old.hidden, old.branch)
        outcome = await here.bring(lines(records))
        assert told(outcome) == [(DIFFERS, 0, COUNT - place)]
        assert [(one.reason, one.place) for one in outcome.problems] == [("DIFFERS", changed.message_id)]
        assert await here.archive() == lines(beginning(WHOLE, 10))
        hide = HideMessages(old.message.message_id)
        event = NewEvent(ConversationChanged(ConversationChange.REVERTED, None))
        if not old.hidden:
            await here.store.commit(Commit(tenant="mine", session_id=SESSION, at=NOW, changes=(hide,), events=(event,)))
            assert told(await here.bring(lines(WHOLE))) == [(DIFFERS, 0, COUNT - place)]


async def test_a_turn_that_runs_here_differs(tmp_path: Path) -> None:
    """It would not know of what is added."""
    async with moving(tmp_path) as here:
        await here.bring(lines(beginning(WHOLE, 5)))
        turn = make_turn(real_id("trn", "here"), SESSION, tenant="mine", status=TurnStatus.RUNNING, started_at=NOW)
        event = NewEvent(ConversationChanged(ConversationChange.IMPORTED, None))
        await here.store.commit(
            Commit(tenant="mine", session_id=SESSION, at=NOW, changes=(PutTurn(turn),), events=(event,))
        )
        assert told(await here.bring(lines(WHOLE))) == [(DIFFERS, 0, COUNT - 5)]
        assert len((await here.store.of("mine").messages(SESSION, Page())).messages) == 5


async def test_what_happens_here_meanwhile_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that comes just before the last commit: nothing is added, and nothing is left of the attempt."""
    async with moving(tmp_path) as here:
        await here.bring(lines(beginning(WHOLE, 5)))
        real = here.store.commit

        def commit(unit: Commit) -> Any:
            if unit.session_id != SESSION:
                return real(unit)
            monkeypatch.setattr(here.store, "commit", real)
            message = make_message(real_id("msg", "x"), "x", session_id=SESSION)
            event = NewEvent(ConversationChanged(ConversationChange.IMPORTED, None))
            real(Commit(tenant="mine", session_id=SESSION, at=NOW, changes=(put(message),), events=(event,)))
            return real(unit)

        monkeypatch.setattr(here.store, "commit", commit)
        assert told(await here.bring(lines(WHOLE))) == [(DIFFERS, 0, COUNT - 5)]
        await here.store.removals()
        assert len((await here.store.of("mine").messages(SESSION, Page())).messages) == 6
        assert told(await here.bring(lines(beginning(WHOLE, 5)))) == [(DIFFERS, 0, 0)]
    assert_sound(here.path)


async def test_a_dry_run_and_a_verification_store_nothing(tmp_path: Path) -> None:
    """The former tells what would be done; to the latter, what is not here is a problem."""
    archive = [*WHOLE, *golden_records("new", HISTORY[:3])]
    first_new = [one for one in WHOLE if isinstance(one, ArchivedMessage)][5].message.message_id
    async with moving(tmp_path) as here:
        await here.bring(lines(beginning(WHOLE, 5)))
        before = await here.archive()
        for fields in ({"dry_run": True}, {"verify": True}):
            outcome = await here.bring(lines(archive), **fields)
            assert told(outcome) == [(ADDED, COUNT - 5, 0), (CREATED, 3, 0)]
            assert [one.session_id for one in outcome.sessions] == [SESSION, ""]
            assert outcome.last.incomplete_count == 2
            places = [(one.reason, one.place) for one in outcome.problems]
            assert places == ([("MISSING", first_new), ("MISSING", "")] if "verify" in fields else [])
            assert await here.archive() == before
        await here.bring(lines(archive))
        verified = await here.bring(lines(archive), verify=True)
        assert told(verified) == [(UNCHANGED, 0, 0)] * 2
        assert (verified.problems, verified.last.incomplete_count) == ([], 0)


async def test_files_without_bytes_are_as_they_were(tmp_path: Path) -> None:
    """A line of text that stands in for a file is no difference; nor are bytes that the archive lacks now."""
    bare = [one for one in WHOLE if not isinstance(one, ArchivedFile)]
    async with moving(tmp_path) as here:
        await here.bring(lines(bare, include_files=False))
        for archive in (lines(bare, include_files=False), lines(WHOLE)):
            assert told(await here.bring(archive)) == [(UNCHANGED, 0, 0)]
        await here.bring(lines(WHOLE), OTHERS)
        assert told(await here.bring(lines(bare, include_files=False), OTHERS)) == [(UNCHANGED, 0, 0)]


@pytest.mark.slow
async def test_branches_go_on(tmp_path: Path) -> None:
    """A message off the path may follow one that was there before."""
    names = [real_id("msg", f"said {number}") for number in range(6)]
    said = [
        make_message(name, make_part(0, Text(name), part_id=real_id("prt", name)), session_id=SESSION) for name in names
    ]
    off = {3: Branch(previous_message_id=names[1]), 4: Branch(previous_message_id="")}
    messages = [ArchivedMessage(one, number in off, off.get(number)) for number, one in enumerate(said)]
    whole: list[Record] = [WHOLE[0], *messages, SessionEnd(6)]
    async with moving(tmp_path) as here:
        for count in (2, 4, 5, 6):
            await here.bring(lines(beginning(whole, count)))
            assert await here.archive() == lines(beginning(whole, count))
            assert told(await here.bring(lines(beginning(whole, count)))) == [(UNCHANGED, 0, 0)]
        others = [one.alternative_count for one in (await here.store.of("mine").messages(SESSION, Page())).messages]
        assert others == [2, 0, 2, 0]
    assert_sound(here.path)


async def test_what_there_is_no_room_for_is_left_out(tmp_path: Path) -> None:
    """As a whole; the same request brings it when there is."""
    small, large = lines(beginning(WHOLE, 2)), lines(WHOLE)
    async with moving(tmp_path) as here:
        await here.bring(small)
        used = here.store.of("mine").account(NOW).stored_bytes
    quotas = QuotaLimits(max_stored_bytes=used + len(large) + 5_000)  # the upload counts too
    async with moving(tmp_path, CoreSettings(default_model=MODEL, quotas=quotas)) as here:
        outcome = await here.bring(large)
        assert [one.reason for one in outcome.problems] == ["QUOTA_EXCEEDED"]
        assert (outcome.sessions, outcome.last.incomplete_count) == ([], 1)
        assert await here.archive() == small
    async with moving(tmp_path) as here:
        assert told(await here.bring(large)) == [(ADDED, COUNT - 2, 0)]
    assert_sound(here.path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["messages", "turns", "calls"])
async def test_ids_of_what_came_since_may_be_taken(tmp_path: Path, kind: str) -> None:
    """Then it is left out and told; the session stays as it is, and the other tenant's too."""
    await prepared(tmp_path / "s")
    async with opened_with_formats(tmp_path / "s") as here:
        await here.bring(lines(WHOLE))
        ids = ids_in(here.path)[kind]
    await prepared(tmp_path / "t")
    async with opened_with_formats(tmp_path / "t") as here:
        await here.bring(lines([WHOLE[0], SessionEnd(0)]))
        await here.bring(lines(squatting({kind: [ids[-1]]})), OTHERS)
        theirs = await here.archive(OTHERS)
        outcome = await here.bring(lines(WHOLE))
        assert [one.reason for one in outcome.problems] == ["NOT_STORED"]
        assert (outcome.sessions, outcome.last.incomplete_count) == ([], 1)
        await here.store.removals()
        assert await here.archive() == lines([WHOLE[0], SessionEnd(0)])
        assert await here.archive(OTHERS) == theirs
    assert_sound(here.path)


async def test_a_turn_that_ran_in_the_source_has_its_end(tmp_path: Path) -> None:
    """The newest turn of the session comes with what came since, as it is now."""
    place = next(number for number, one in enumerate(WHOLE) if isinstance(one, ArchivedTurn))
    turn = WHOLE[place]
    assert isinstance(turn, ArchivedTurn)
    cut = list(WHOLE)
    cut[place] = ArchivedTurn(msgspec.structs.replace(turn.turn, steps=0, usage=None, cost_pico_usd=None))
    async with moving(tmp_path) as here:
        await here.bring(lines(beginning(cut, 4)))
        assert told(await here.bring(lines(beginning(WHOLE, 4)))) == [(UNCHANGED, 0, 0)]
        assert told(await here.bring(lines(WHOLE))) == [(ADDED, COUNT - 4, 0)]
        assert await here.archive() == lines(WHOLE)
    assert_sound(here.path)


@pytest.mark.slow
async def test_what_is_added_is_killed_and_comes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each of its commits the session is as it was or as it is to be, and the same request brings the rest."""
    small_parts(monkeypatch)
    whole = [*golden_records("golden", HISTORY[:7]), *golden_records("second", HISTORY[4:6])]
    archive, begun = lines(whole), lines(beginning(whole, 2))
    states = set[bytes]()
    for commits in itertools.count():
        folder, copy = tmp_path / f"{commits}", tmp_path / f"{commits}-killed"
        folder.mkdir()
        async with moving(folder) as here:
            await here.bring(lines(beginning(golden_records("golden", HISTORY[:7]), 2)))
            upload_id = await here.upload(archive)
            if not await dies_at(here, commits, here.follow(MINE, upload_id=upload_id), copy):
                break
        async with moving(copy) as again:
            states.add(await again.archive(MINE, SESSION))
            outcome = await again.follow(MINE, upload_id=upload_id)
            assert await again.archive(MINE, *(one.session_id for one in outcome.sessions)) == archive
            await again.store.removals()
            account = again.store.of("mine").account(NOW)
        assert_sound(copy / here.path.name)
        async with moving(copy) as reopened:
            assert reopened.store.of("mine").account(NOW) == account
    golden = golden_records("golden", HISTORY[:7])
    assert states == {lines(beginning(golden, 2)), lines(golden)}
    assert begun
    assert commits > 8


@pytest.mark.slow
async def test_others_do_not_wait_for_what_is_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes in parts, which nobody sees; then all of it is there."""
    messages = [
        ArchivedMessage(
            make_message(
                real_id("msg", str(number)),
                make_part(0, Text("x"), part_id=real_id("prt", str(number))),
                session_id=SESSION,
            )
        )
        for number in range(600)
    ]
    whole: list[Record] = [WHOLE[0], *messages, SessionEnd(600)]
    async with moving(tmp_path) as here:
        await here.bring(lines(beginning(whole, 1)))
        real, sizes = here.store.commit, list[int]()

        def commit(unit: Commit) -> asyncio.Future[Any]:
            sizes.append(sum(isinstance(one, PutMessage) for one in unit.changes))
            return real(unit)

        monkeypatch.setattr(here.store, "commit", commit)
        assert told(await here.bring(lines(whole))) == [(ADDED, 599, 0)]
        assert max(sizes) <= 100
        assert await here.archive() == lines(whole)
    assert_sound(here.path)
