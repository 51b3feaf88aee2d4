"""Imports over the real store: whole sessions or nothing, and the same again when they are exported."""

import asyncio
import contextlib
import hashlib
import itertools
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from tests.support.fakes.domain_values import (
    NOW,
    make_answer,
    make_file,
    make_message,
    make_part,
    make_session,
    make_turn,
)
from tests.support.fakes.opened_store import events_in
from tests.support.oracles.archives import golden_records, real_id
from tests.support.oracles.golden_history import HISTORY
from tests.support.oracles.histories import Conversation, histories
from tests.support.oracles.sound import assert_sound
from tests.support.servers.moving import MINE, OTHERS, dies_at, lines, moving, small_parts, until_clean
from turnwire.core.settings import CoreSettings, QuotaLimits
from turnwire.core.use_cases.moving import exports, validation
from turnwire.core.use_cases.moving.bringing import ImportRequest
from turnwire.core.use_cases.moving.parts import PART_BYTES, SessionInParts
from turnwire.core.use_cases.moving.progress import ImportProgress
from turnwire.domain.archive.records import (
    ArchivedFile,
    ArchivedMessage,
    ArchivedSession,
    ArchivedTurn,
    ImportProblem,
    Record,
    SessionEnd,
)
from turnwire.domain.conversation.events import ConversationChange, ConversationChanged, SessionDeleted
from turnwire.domain.conversation.messages import Branch, Message, ModelRef, Origin, Text, ToolStatus, ToolUse
from turnwire.domain.conversation.turns import ToolDefinition, TurnStatus
from turnwire.domain.errors import (
    ArchiveInvalid,
    InvalidRequest,
    NothingToRestore,
    RequestIdReused,
    SessionNotFound,
    ShuttingDown,
    StorageBusy,
    StorageError,
    UploadNotFound,
)
from turnwire.interop.turnwire_lines import reading
from turnwire.interop.turnwire_lines.reading import LinesReader
from turnwire.ports.commit import (
    Change,
    Commit,
    Committed,
    NewEvent,
    PutMessage,
    PutSession,
    RemoveSession,
    SessionState,
    ShowMessages,
)
from turnwire.ports.moving.archives import ArchiveFormat
from turnwire.ports.pages import Page
from turnwire.storage.sql.writer import GroupWriter

MODEL = ModelRef("offline", "echo")
SESSION = real_id("ses", "golden")


async def test_export_import_export_is_byte_equal(tmp_path: Path) -> None:
    """In another tenant of another server, with every field of every value; and nothing is wrong with the database."""
    archive = lines([*golden_records(), *golden_records("second")])
    async with moving(tmp_path) as here:
        outcome = await here.bring(archive)
        assert [(one.source_id, one.session_id, one.existed) for one in outcome.sessions] == [
            (SESSION, SESSION, False),
            (real_id("ses", "second"), real_id("ses", "second"), False),
        ]
        assert outcome.problems == []
        assert outcome.last.done_bytes == outcome.last.total_bytes == len(archive)
        assert await here.archive(MINE, SESSION, real_id("ses", "second")) == archive
        stored = await here.store.of("mine").session(SESSION)
        assert stored.updated_at == NOW
        bounds = await here.store.of("mine").session_bounds(SESSION)
        assert bounds.head == 2
        with pytest.raises(UploadNotFound):
            await here.store.uploads.upload("mine", "upl_1")
        path = here.path
    assert_sound(path)


async def test_the_progress_of_an_import_only_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of it is the check, the other half what is stored, or is there already."""
    told = list[int]()
    shown = property(lambda _: told[-1], lambda _, value: told.append(value))
    monkeypatch.setattr(ImportProgress, "done_bytes", shown, raising=False)
    archive = lines([one for number in range(4) for one in golden_records(str(number))])
    async with moving(tmp_path) as here:
        for _ in range(2):
            told.clear()
            await here.bring(archive)
            assert told == sorted(told)
            assert (told[0], told[-1]) == (0, len(archive))
            assert any(0 < done < len(archive) // 2 for done in told)
            assert any(len(archive) // 2 < done < len(archive) for done in told)


@pytest.mark.slow
async def test_any_history_comes_through(tmp_path: Path) -> None:
    """Byte for byte, whatever stands in it."""
    names = map(str, itertools.count())
    drawn = list[tuple[Message, ...]]()

    @settings(database=None, suppress_health_check=[HealthCheck.too_slow])
    @given(histories(Conversation("anthropic", "claude", "claude-opus-4-8")))
    def draw(history: tuple[Message, ...]) -> None:
        drawn.append(history)

    await asyncio.to_thread(draw)
    archive = lines([one for history in drawn for one in golden_records(next(names), history)])
    async with moving(tmp_path) as here:
        outcome = await here.bring(archive)
        assert outcome.problems == []
        assert await here.archive(MINE, *(one.session_id for one in outcome.sessions)) == archive


async def test_twice_is_once(tmp_path: Path) -> None:
    """Sessions that exist already are skipped and named."""
    archive = lines(golden_records())
    async with moving(tmp_path) as here:
        await here.bring(archive)
        again = await here.bring(archive)
        assert [(one.session_id, one.existed) for one in again.sessions] == [(SESSION, True)]
        assert await here.archive() == archive


async def test_ids_that_are_taken_are_derived(tmp_path: Path) -> None:
    """The same ones each time, so that a second import finds the session; references inside lead to them."""
    archive = lines(golden_records())
    async with moving(tmp_path) as here:
        await here.bring(archive)
        theirs = await here.bring(archive, OTHERS)
        [session] = theirs.sessions
        assert session.session_id != SESSION
        assert not session.existed
        again = await here.bring(archive, OTHERS)
        assert [(one.session_id, one.existed) for one in again.sessions] == [(session.session_id, True)]
        mine = (await here.store.of("mine").messages(SESSION, Page())).messages
        copies = (await here.store.of("others").messages(session.session_id, Page())).messages
        assert [[part.copied_id for part in m.parts] for m in copies] == [[p.part_id for p in m.parts] for m in mine]
        assert not {m.message_id for m in mine} & {m.message_id for m in copies}
        turn = await here.store.of("others").turn(session.session_id, copies[0].turn_id)
        assert turn.user_message_id == copies[0].message_id
        original = await here.store.of("mine").turn(SESSION, mine[0].turn_id)
        assert turn.merged_into_turn_id.startswith("trn_") and turn.ended_by_message_id.startswith("msg_")
        assert turn.merged_into_turn_id != original.merged_into_turn_id
        assert turn.ended_by_message_id != original.ended_by_message_id
        assert copies[-1].compaction is not None
        assert copies[-1].compaction.through_message_id == copies[0].message_id
        assert await here.archive() == archive
        path = here.path
    assert_sound(path)


async def test_sessions_of_one_archive_may_have_equal_ids(tmp_path: Path) -> None:
    """The second one gets others: each is whole."""
    first, second = golden_records("golden", HISTORY[:3]), golden_records("golden", HISTORY[:3])
    other = real_id("ses", "other")

    def moved(record: Record) -> Record:
        match record:
            case ArchivedSession(session):
                return ArchivedSession(msgspec.structs.replace(session, session_id=other))
            case ArchivedTurn(turn):
                return ArchivedTurn(msgspec.structs.replace(turn, session_id=other))
            case ArchivedMessage(message, hidden):
                return ArchivedMessage(msgspec.structs.replace(message, session_id=other), hidden)
            case _:
                return record

    async with moving(tmp_path) as here:
        outcome = await here.bring(lines([*first, *map(moved, second)]))
        assert [one.source_id == one.session_id for one in outcome.sessions] == [True, False]
        for one in outcome.sessions:
            assert len((await here.store.of("mine").messages(one.session_id, Page())).messages) == 3


@pytest.mark.parametrize("kind", ["session", "message", "turn", "part"])
async def test_an_id_twice_in_a_session_is_refused(tmp_path: Path, kind: str) -> None:
    """And a session twice in an archive; the place is told, nothing is stored."""
    records = golden_records("golden", HISTORY[:4])
    if kind == "session":
        records = [*records, *records]
    else:
        wanted = ArchivedTurn if kind == "turn" else ArchivedMessage
        place = next(number for number, record in enumerate(records) if isinstance(record, wanted))
        twice: Any = records[place]
        if kind == "part":
            other = real_id("msg", "new")
            twice = ArchivedMessage(msgspec.structs.replace(twice.message, message_id=other))
        records.insert(place + 1, twice)
        if kind != "turn":
            records[-1] = SessionEnd(records[-1].messages + 1)  # type: ignore[union-attr]
    async with moving(tmp_path) as here:
        with pytest.raises(ArchiveInvalid, match="twice") as refusal:
            await here.bring(lines(records))
        assert refusal.value.metadata["place"] == ("sessions[1]" if kind == "session" else SESSION)
        await nothing_is_stored(here)


@pytest.mark.parametrize("name", ["previous_message_id", "turn_id"])
async def test_a_branch_follows_what_comes_before(tmp_path: Path, name: str) -> None:
    """One that names something else is refused, with its place."""
    records = golden_records("golden", HISTORY[:3])
    place = next(number for number, record in enumerate(records) if isinstance(record, ArchivedMessage))
    message = records[place].message  # type: ignore[union-attr]
    foreign = Branch(**{name: real_id("msg" if name == "previous_message_id" else "trn", "foreign")})
    records[place] = ArchivedMessage(message, hidden=True, branch=foreign)
    async with moving(tmp_path) as here:
        with pytest.raises(ArchiveInvalid, match="does not come before") as refusal:
            await here.bring(lines(records))
        assert refusal.value.metadata["place"].endswith(f"branch.{name}")
        await nothing_is_stored(here)


async def nothing_is_stored(here: Any) -> None:
    """Checks that the database has no session, no message and no file."""
    await until_clean(here.store)
    with sqlite3.connect(here.path) as db:
        for table in ("sessions", "turns", "messages", "files", "events"):
            assert db.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table


async def test_a_wrong_archive_stores_nothing(tmp_path: Path) -> None:
    """However late it is wrong; the upload stays."""
    archive = lines([*golden_records(), *golden_records("second")])
    ends = [number + 1 for number, byte in enumerate(archive) if byte == ord("\n")]
    async with moving(tmp_path) as here:
        for end in ends[:-1:3]:
            upload_id = await here.upload(archive[:end])
            with pytest.raises(ArchiveInvalid, match="cut"):
                await here.follow(MINE, upload_id=upload_id)
            assert (await here.store.uploads.upload("mine", upload_id)).is_complete
        await nothing_is_stored(here)
        assert here.store.of("mine").account(NOW).sessions == 0


async def test_a_turn_of_another_session_is_refused(tmp_path: Path) -> None:
    """A message names turns of its own session only."""
    records = golden_records()
    place = next(n for n, one in enumerate(records) if isinstance(one, ArchivedMessage))
    message = records[place].message  # type: ignore[union-attr]
    records[place] = ArchivedMessage(msgspec.structs.replace(message, turn_id=real_id("trn", "foreign")))
    async with moving(tmp_path) as here:
        with pytest.raises(ArchiveInvalid, match="turn that does not come before"):
            await here.bring(lines(records))


async def test_a_dry_run_stores_nothing(tmp_path: Path) -> None:
    """And tells what an import would do; the upload stays for it."""
    archive = lines([*golden_records(), *golden_records("second")])
    async with moving(tmp_path) as here:
        await here.bring(lines(golden_records()))
        upload_id = await here.upload(archive)
        dry = await here.follow(MINE, upload_id=upload_id, dry_run=True)
        assert [(one.session_id, one.existed) for one in dry.sessions] == [(SESSION, True), ("", False)]
        assert await here.store.of("mine").session_ids() == (SESSION,)
        wet = await here.follow(MINE, upload_id=upload_id)
        assert [one.existed for one in wet.sessions] == [True, False]


async def test_events_tell_of_an_imported_session(tmp_path: Path) -> None:
    """It was created, and its messages are to be read; that is all, and it has its own time in lists."""
    async with moving(tmp_path) as here:
        await here.bring(lines(golden_records()))
        page = await here.store.of("mine").session_events(SESSION, 0, None)
        created, changed = events_in(page.frames)
        assert created.session_created.session.id == SESSION
        assert (changed.conversation_changed.reread, changed.conversation_changed.change) == (True, 6)


async def test_a_deleted_session_comes_back_under_its_id(tmp_path: Path) -> None:
    """Its sequences go on, so that a watcher who knew it sees a new session; also after the second time."""
    archive = lines(golden_records())
    async with moving(tmp_path) as here:
        for _ in range(2):
            await here.bring(archive)
            await here.store.commit(
                Commit(
                    tenant="mine",
                    session_id=SESSION,
                    at=NOW,
                    changes=(RemoveSession(),),
                    events=(NewEvent(SessionDeleted()),),
                )
            )
        deleted_at = 2 * 3
        again = await here.bring(archive)
        assert again.sessions[0].session_id == SESSION
        bounds = await here.store.of("mine").session_bounds(SESSION)
        assert (bounds.earliest, bounds.head) == (deleted_at - 1, deleted_at + 2)
        theirs = await here.bring(archive, OTHERS)
        assert theirs.sessions[0].session_id != SESSION
        assert await here.archive() == archive
        path, account = here.path, here.store.of("mine").account(NOW)
    assert_sound(path)
    async with moving(tmp_path) as again_opened:
        assert again_opened.store.of("mine").account(NOW) == account


async def test_hidden_messages_stay_hidden(tmp_path: Path) -> None:
    """Nothing brings them back: that they can be is not part of an archive."""
    async with moving(tmp_path) as here:
        await here.bring(lines(golden_records()))
        shown = (await here.store.of("mine").messages(SESSION, Page())).messages
        assert len(shown) == len(HISTORY) - 2
        change = ConversationChanged(ConversationChange.RESTORED, None)
        with pytest.raises(NothingToRestore):
            await here.store.commit(
                Commit(tenant="mine", session_id=SESSION, at=NOW, changes=(ShowMessages(),), events=(NewEvent(change),))
            )


async def test_an_archive_without_files_puts_words_in_their_place(tmp_path: Path) -> None:
    """And says where."""
    async with moving(tmp_path) as here:
        records = [one for one in golden_records() if not isinstance(one, ArchivedFile)]
        outcome = await here.bring(lines(records, include_files=False))
        assert {problem.reason for problem in outcome.problems} == {"FILE_MISSING"}
        assert {problem.source_id for problem in outcome.problems} == {SESSION}
        shown = (await here.store.of("mine").messages(SESSION, Page())).messages
        texts = [part.content.text for m in shown for part in m.parts if isinstance(part.content, Text)]
        assert "[plot.png, image/png: not in the archive]" in texts
        assert not any(call.files or call.full_output for m in shown for _, call in m.tool_calls())


async def test_a_directory_that_is_not_allowed_is_left_out(tmp_path: Path) -> None:
    """And told: an archive gives nobody a folder of the server."""
    records = golden_records("golden", ())
    session = records[0].session  # type: ignore[union-attr]
    records[0] = ArchivedSession(msgspec.structs.replace(session, directory="/etc"))
    async with moving(tmp_path) as here:
        outcome = await here.bring(lines(records))
        assert [problem.reason for problem in outcome.problems] == ["DIRECTORY_NOT_ALLOWED"]
        assert (await here.store.of("mine").session(SESSION)).directory == ""


async def test_equal_files_are_stored_once(tmp_path: Path) -> None:
    """With what the tenant has already; the account agrees after a restart."""
    async with moving(tmp_path) as here:
        await here.bring(lines(golden_records()))
        await here.bring(lines(golden_records("second")))
        await here.bring(lines(golden_records()), OTHERS)
        with sqlite3.connect(here.path) as db:
            counts = dict(db.execute("SELECT tenant, count(*) FROM files GROUP BY tenant").fetchall())
            assert counts == {"mine": 6, "others": 6}
        accounts = [here.store.of(tenant).account(NOW) for tenant in ("mine", "others")]
        assert [account.sessions for account in accounts] == [2, 1]
    async with moving(tmp_path) as again:
        assert [again.store.of(tenant).account(NOW) for tenant in ("mine", "others")] == accounts


async def test_quotas_leave_a_session_out_as_a_whole(tmp_path: Path) -> None:
    """The others come; the upload stays, and the same request brings the rest when there is room."""
    archive = lines([one for name in ("a", "b", "c") for one in golden_records(name, HISTORY[:2])])
    quotas = QuotaLimits(max_sessions=2)
    tight = CoreSettings(default_model=MODEL, quotas=quotas)
    async with moving(tmp_path, tight) as here:
        upload_id = await here.upload(archive)
        outcome = await here.follow(MINE, upload_id=upload_id, request_id="r")
        assert [one.source_id for one in outcome.sessions] == [real_id("ses", "a"), real_id("ses", "b")]
        assert [(one.reason, one.source_id) for one in outcome.problems] == [("QUOTA_EXCEEDED", real_id("ses", "c"))]
    async with moving(tmp_path) as here:
        outcome = await here.follow(MINE, upload_id=upload_id, request_id="r")
        assert [one.existed for one in outcome.sessions] == [True, True, False]


async def test_stored_bytes_are_a_quota_of_the_whole_session(tmp_path: Path) -> None:
    """Nothing of a session that does not fit is stored, and what was counted is free again."""
    archive = lines(golden_records())
    quotas = QuotaLimits(max_stored_bytes=len(archive) + 5_000)  # the upload counts too
    async with moving(tmp_path, CoreSettings(default_model=MODEL, quotas=quotas)) as here:
        for _ in range(2):
            upload_id = await here.upload(archive)
            outcome = await here.follow(MINE, upload_id=upload_id)
            assert [one.reason for one in outcome.problems] == ["QUOTA_EXCEEDED"]
            await here.store.uploads.remove("mine", upload_id)
        small = await here.bring(lines(golden_records("small", ())))
        assert small.problems == []


async def test_requests_are_answered_again(tmp_path: Path) -> None:
    """A named one gets its outcome, though its upload is gone; another content under the name is refused."""
    archive = lines(golden_records())
    async with moving(tmp_path) as here:
        upload_id = await here.upload(archive)
        first = await here.follow(MINE, upload_id=upload_id, request_id="r", fingerprint="1")
        again = await here.follow(MINE, upload_id=upload_id, request_id="r", fingerprint="1")
        assert again.sessions == first.sessions
        with pytest.raises(RequestIdReused):
            await here.follow(MINE, upload_id=upload_id, request_id="r", fingerprint="2")
        with pytest.raises(UploadNotFound):
            await here.follow(OTHERS, upload_id=upload_id, request_id="r", fingerprint="1")


async def test_another_request_of_the_same_name_at_once_is_refused(tmp_path: Path) -> None:
    """Both look the upload up before either import is known; only an equal request joins."""
    async with moving(tmp_path) as here:
        upload_id = await here.upload(lines(golden_records()))
        asked = [
            here.follow(MINE, upload_id=upload_id, request_id="r", fingerprint=fingerprint, dry_run=True)
            for fingerprint in ("1", "1", "2")
        ]
        one, same, other = await asyncio.gather(*asked, return_exceptions=True)
        assert isinstance(other, RequestIdReused)
        assert not isinstance(one, BaseException)
        assert one == same


async def test_an_import_that_is_cancelled_before_its_first_step_has_ended(tmp_path: Path) -> None:
    """Its callers get the reason, and the next import begins: a server may leave a shard at any moment."""
    archive = lines(golden_records())
    async with moving(tmp_path) as here:
        request = ImportRequest(upload_id=await here.upload(archive))
        async with contextlib.aclosing(here.imports.run(MINE, request)) as statuses:
            await anext(statuses)
            await here.imports.leave(lambda _: True)
            await here.bring(archive)
            with pytest.raises(ShuttingDown):
                _ = [status async for status in statuses]
        assert await here.archive() == archive


async def test_a_folder_without_room_is_a_clean_error(tmp_path: Path) -> None:
    """Copies of archives are beside the database; where none can be made, nothing is stored and the upload stays."""
    gone = CoreSettings(default_model=MODEL, spool_folder=tmp_path / "gone")
    async with moving(tmp_path, gone) as here:
        upload_id = await here.upload(lines(golden_records()))
        with pytest.raises(StorageError, match="No such file"):
            await here.follow(MINE, upload_id=upload_id)
        assert await here.store.of("mine").session_ids() == ()
        assert (await here.store.uploads.upload("mine", upload_id)).is_complete


@pytest.mark.parametrize("kind", ["sessions", "ids"])
async def test_more_ids_than_memory_is_for_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Those of a session, and the sessions; nothing is stored."""
    monkeypatch.setattr(validation, "MAX_IDS", 3)
    names, history = (map(str, range(4)), ()) if kind == "sessions" else (["golden"], HISTORY[:4])
    async with moving(tmp_path) as here:
        with pytest.raises(ArchiveInvalid, match="more than 3 sessions, or ids in one of them"):
            await here.bring(lines([one for name in names for one in golden_records(name, history)]))
        await nothing_is_stored(here)


async def test_a_session_with_more_files_than_the_writer_has_time_for_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit that publishes it looks at each; nothing is stored."""
    session, *others = golden_records()
    files = [ArchivedFile(hashlib.sha256(content).hexdigest(), content) for content in (b"1", b"2", b"3")]
    count = sum(isinstance(one, ArchivedFile) for one in others) + len(files)
    async with moving(tmp_path) as here:
        monkeypatch.setattr(validation, "MAX_FILES", count - 1)
        with pytest.raises(ArchiveInvalid, match=f"has more than {count - 1} files"):
            await here.bring(lines([session, *files, *others]))
        await nothing_is_stored(here)
        monkeypatch.setattr(validation, "MAX_FILES", count)
        assert len((await here.bring(lines([session, *files, *others]))).sessions) == 1


async def test_a_session_with_taken_ids_is_read_again_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is read once more at most, however many there are before it."""
    records, ids = list[Record](), [real_id("ses", f"s{number}") for number in range(6)]
    for session_id in ids:
        records.append(ArchivedSession(make_session(session_id)))
        for number in range(101):
            message_id = real_id("msg", "same" if number == 100 else f"{session_id} {number}")
            message = make_message(message_id, "x", session_id=session_id)
            records.append(ArchivedMessage(msgspec.structs.replace(message, parts=())))
        records.append(SessionEnd(101))
    parsed, parse = list[object](), reading._line
    monkeypatch.setattr(reading, "_line", lambda data: (parsed.append(parse(data)), parsed[-1])[1])
    async with moving(tmp_path) as here:
        outcome = await here.bring(lines(records))
    assert [one.message_count for one in outcome.sessions] == [101] * 6
    assert len(parsed) <= 3 * (len(records) + 1)  # the check reads them, too


async def test_an_export_that_has_no_room_is_a_clean_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that is too long for the memory waits beside the database for its reader."""
    monkeypatch.setattr(exports, "MEMORY_BYTES", 10)
    settings = CoreSettings(default_model=MODEL, spool_folder=tmp_path / "gone")
    async with moving(tmp_path, settings) as here:
        session = make_session("ses_1", tenant="mine")
        await here.store.commit(Commit(tenant="mine", session_id="ses_1", at=NOW, changes=(PutSession(session),)))
        with pytest.raises(StorageError, match="No such file"):
            await here.archive()
        settings.spool_folder.mkdir()
        assert b"ses_1" in await here.archive()
        assert list(settings.spool_folder.iterdir()) == []


async def test_an_export_leaves_no_session_in_memory(tmp_path: Path) -> None:
    """Another node may own it, and what it changes is read from the database."""
    async with moving(tmp_path) as here:
        session = make_session("ses_1", tenant="mine")
        await here.store.commit(Commit(tenant="mine", session_id="ses_1", at=NOW, changes=(PutSession(session),)))
        assert b"ses_1" in await here.archive(MINE, "ses_1")
        with closing(sqlite3.connect(here.path)) as database, database:
            database.execute("UPDATE sessions SET tenant = 'others'")
        with pytest.raises(SessionNotFound):
            await here.store.of("mine").cached_session("ses_1")


async def test_wrong_requests_are_refused(tmp_path: Path) -> None:
    """Formats and options that there are not, and uploads that are not complete or another tenant's."""
    async with moving(tmp_path) as here:
        upload_id = await here.upload(lines(golden_records()))
        for fields, match in (({"format": "papyrus"}, "format"), ({"options": {"a": "b"}}, "options")):
            with pytest.raises(InvalidRequest, match=match):
                await here.follow(MINE, upload_id=upload_id, **fields)
        partial = await here.upload(b"x", is_whole=False)
        with pytest.raises(InvalidRequest, match="not complete"):
            await here.follow(MINE, upload_id=partial)
        with pytest.raises(UploadNotFound):
            await here.follow(OTHERS, upload_id=upload_id)


class Foreign:
    """A format with ids of its own, some of which mean something here."""

    keeps_ids = False

    def read(self, source: BinaryIO, options: Mapping[str, str]) -> Iterator[Record | ImportProblem]:
        """Yields two sessions with equal ids inside."""
        del options
        assert source.read() == b"foreign"
        for name in ("chat/1", "chat/2"):
            yield ArchivedSession(make_session(name, title=name))
            yield ArchivedFile(make_file(b"abc").sha256, b"abc")
            turn = make_turn("t", name, user_message_id="1", status=TurnStatus.ENDED, ended_at=NOW)
            yield ArchivedTurn(turn)
            script = make_file(b"abc", filename="a.py", mime="application/octet-stream")
            yield ArchivedMessage(make_message("1", "hello", script, session_id=name, turn_id="t"))
            call = ToolUse(name="look", call_id="c", status=ToolStatus.SUCCESS, output="a cat")
            yield ArchivedMessage(
                make_answer(
                    "2", make_part(0, call, part_id="call"), session_id=name, turn_id="t", answers_message_id="1"
                )
            )
            yield ImportProblem(reason="UNKNOWN_PART", explanation="a video", source_id=name, place="mapping.2")
            yield SessionEnd(2)


async def test_other_formats_get_ids_of_their_source(tmp_path: Path) -> None:
    """The same ones each time; the session says where it is from, and what could not be carried is told."""
    async with moving(tmp_path, foreign=ArchiveFormat(Foreign())) as here:
        first = await here.bring(b"foreign", format="foreign")
        assert [one.source_id for one in first.sessions] == ["chat/1", "chat/2"]
        assert [(one.reason, one.place) for one in first.problems] == [("UNKNOWN_PART", "mapping.2")] * 2
        again = await here.bring(b"foreign", format="foreign")
        assert [one.session_id for one in again.sessions] == [one.session_id for one in first.sessions]
        assert [one.existed for one in again.sessions] == [True, True]
        session = await here.store.of("mine").session(first.sessions[0].session_id)
        assert session.origin == Origin(system="foreign", session_id="chat/1")
        question, answer = (await here.store.of("mine").messages(session.session_id, Page())).messages
        assert answer.answers_message_id == question.message_id
        assert question.message_id.startswith("msg_")
        assert [file.language for file in question.files()] == ["python"]
        assert (await here.store.of("mine").turn(session.session_id, answer.turn_id)).subject == ""
        own = await here.archive()
        assert (await here.bring(own, OTHERS)).problems == []
        path = here.path
    assert_sound(path)


PARTS = golden_records("golden", HISTORY[:7])
"""A session that takes several commits when they are small."""


@pytest.mark.slow
async def test_an_import_that_is_killed_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each of its commits: what is there is whole, the doctor has nothing to say, and the same request again
    brings everything, with no trace of the first attempt.
    """
    small_parts(monkeypatch)
    archive = lines([*PARTS, *golden_records("second", HISTORY[4:6])])
    reached = itertools.count()
    for commits in reached:
        folder, copy = tmp_path / f"{commits}", tmp_path / f"{commits}-killed"
        folder.mkdir()
        async with moving(folder) as here:
            upload_id = await here.upload(archive)
            if not await dies_at(here, commits, here.follow(MINE, upload_id=upload_id), copy):
                break
        assert_sound(copy / here.path.name)
        async with moving(copy) as again:
            before = await again.archive()
            assert before in (lines([]), lines(PARTS))
            outcome = await again.follow(MINE, upload_id=upload_id)
            assert [one.existed for one in outcome.sessions] == [before != lines([]), False]
            assert await again.archive(MINE, *(one.session_id for one in outcome.sessions)) == archive
            await again.store.removals()
            account = again.store.of("mine").account(NOW)
        assert_sound(copy / here.path.name)
        async with moving(copy) as reopened:
            assert reopened.store.of("mine").account(NOW) == account
    assert commits > 10


async def test_what_could_not_be_removed_does_not_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database fails while parts are stored, and when they are to be removed; the same import brings them later."""
    small_parts(monkeypatch)
    archive, real, left = lines(PARTS), GroupWriter.commit, itertools.count(3, -1)

    def commit(writer: GroupWriter, unit: Commit) -> asyncio.Future[Committed]:
        if next(left) > 0:
            return real(writer, unit)
        failed: asyncio.Future[Committed] = asyncio.get_running_loop().create_future()
        failed.set_exception(StorageBusy("the database is away"))
        return failed

    async with moving(tmp_path) as here:
        upload_id = await here.upload(archive)
        with monkeypatch.context() as away:
            away.setattr(GroupWriter, "commit", commit)
            for _ in range(2):
                with pytest.raises(StorageBusy):
                    await here.follow(MINE, upload_id=upload_id)
        outcome = await here.follow(MINE, upload_id=upload_id)
        assert [(one.session_id, one.existed) for one in outcome.sessions] == [(SESSION, False)]
        assert await here.archive() == archive
        path = here.path
    assert_sound(path)


async def test_what_is_half_stored_is_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No list, no read, no count and no event knows of it until it is whole."""
    small_parts(monkeypatch)
    async with moving(tmp_path) as here:
        real, looked = here.store.commit, 0

        def commit(unit: Commit) -> asyncio.Future[Any]:
            nonlocal looked
            if unit.state is SessionState.IMPORTING:
                looked += 1
                with sqlite3.connect(here.path) as db:
                    query = "SELECT (SELECT count(*) FROM live_sessions), (SELECT count(*) FROM events)"
                    assert db.execute(query).fetchone() == (0, 0)
                assert here.store.of("mine").account(NOW).sessions == 0
            return real(unit)

        monkeypatch.setattr(here.store, "commit", commit)
        await here.bring(lines(PARTS))
        assert looked > 5
        assert [one.session_id for one in (await here.store.of("mine").sessions(Page())).sessions] == [SESSION]


def spoken(name: str, words: str) -> ArchivedMessage:
    """Returns a message of the session."""
    part = make_part(0, Text(words), part_id=real_id("prt", name))
    return ArchivedMessage(make_message(real_id("msg", name), part, session_id=SESSION))


@pytest.mark.slow
async def test_others_never_wait_for_more_than_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit of an import holds 100 messages or a megabyte, and waits for its turn like every other one."""
    messages = [spoken(str(n), "x" * 100) for n in range(1500)]
    [first, *_], big = golden_records("golden", ()), "x" * 600_000
    large = [spoken(f"large {n}", big) for n in range(6)]
    async with moving(tmp_path) as here:
        real, sizes = here.store.commit, list[tuple[int, int]]()

        def commit(unit: Commit) -> asyncio.Future[Any]:
            changes = [one for one in unit.changes if isinstance(one, PutMessage)]
            sizes.append((len(changes), sum(len(msgspec.json.encode(one.message)) for one in changes)))
            waiting = [one for one, *_ in here.store._writer._waiting if isinstance(one, Commit)]
            assert SESSION not in {one.session_id for one in waiting}  # nothing of an import is in the queue twice
            return real(unit)

        monkeypatch.setattr(here.store, "commit", commit)
        await here.bring(lines([first, *messages, *large, SessionEnd(1506)]))
        assert max(count for count, _ in sizes) <= 100
        assert max(size for _, size in sizes) < 2**20 + 700_000
        assert sum(count for count, _ in sizes) == 1506


@pytest.mark.slow
async def test_no_part_of_a_session_is_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However the bytes of its records are spread: commits and memory stay small."""
    parts = list[tuple[int, int]]()
    put = SessionInParts.put

    async def noted(self: SessionInParts, changes: Sequence[Change]) -> None:
        rows = sum(len(one.message.parts) for one in changes if isinstance(one, PutMessage))
        parts.append((len(msgspec.json.encode(changes)), rows))
        await put(self, changes)

    monkeypatch.setattr(SessionInParts, "put", noted)
    tools = (ToolDefinition("look", "x" * 300_000, ""),)
    turns = [
        ArchivedTurn(
            make_turn(
                real_id("trn", str(n)),
                SESSION,
                status=TurnStatus.ENDED,
                tools=tools,
                user_message_id=real_id("msg", "a"),
            )
        )
        for n in range(20)
    ]
    messages = [
        ArchivedMessage(
            make_message(
                real_id("msg", str(n)),
                *(make_part(i, Text(""), part_id=real_id("prt", f"{n} {i}")) for i in range(500)),
                session_id=SESSION,
            )
        )
        for n in range(30)
    ]
    records: list[Record] = [ArchivedSession(make_session(SESSION)), *turns, *messages, SessionEnd(30)]
    async with moving(tmp_path) as here:
        await here.bring(lines(records))
    assert max(size for size, _ in parts) < 2 * PART_BYTES
    assert max(rows for _, rows in parts) < 5_000


async def test_a_killed_import_leaves_no_file(tmp_path: Path) -> None:
    """The copy of its archive has no name while it is read."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    settings = CoreSettings(default_model=MODEL, spool_folder=folder)
    found = list[list[Path]]()

    class Reader(LinesReader):
        def read(self, source: BinaryIO, options: Mapping[str, str]) -> Iterator[Record | ImportProblem]:
            found.append(list(folder.iterdir()))
            return super().read(source, options)

    async with moving(tmp_path, settings, other=ArchiveFormat(Reader(2**22))) as here:
        await here.bring(lines(golden_records()), format="other")
    assert found == [[], []]
