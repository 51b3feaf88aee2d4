"""Store: the files of tool results, and which session may read which file."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.fakes.domain_values import NOW, adding, creating, make_answer, make_file, make_message, removing
from tests.support.fakes.opened_store import OpenedStore, opened_store
from turnwire.domain.conversation.messages import File, Message, MessageStatus, ToolStatus, ToolUse
from turnwire.domain.errors import SessionNotFound, StorageError
from turnwire.domain.principal import DEFAULT_TENANT
from turnwire.ports.commit import Commit, PutFile, PutMessage, RemoveMessage

PLOT, PLOT_BYTES = make_file(b"plot", "plot.png"), b"plot"
LOG, LOG_BYTES = make_file(b"log", "log.txt"), b"log"
ALL, ALL_BYTES = make_file(b"all of it", ""), b"all of it"
FILES = (PutFile(PLOT.sha256, PLOT_BYTES), PutFile(LOG.sha256, LOG_BYTES), PutFile(ALL.sha256, ALL_BYTES))


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[OpenedStore]:
    """A store with two empty sessions."""
    async with opened_store(tmp_path) as running:
        for session_id in ("ses_1", "ses_2"):
            await running.store.commit(creating(session_id))
        yield running


def _call(*files: File, full_output: File | None = None) -> ToolUse:
    return ToolUse(
        name="draw", input_json="{}", status=ToolStatus.SUCCESS, output="drawn", files=files, full_output=full_output
    )


def _stored(opened: OpenedStore) -> set[bytes]:
    with opened.database() as db:
        return {content for (content,) in db.rows("SELECT content FROM files")}


async def _readable(opened: OpenedStore, session_id: str = "ses_1") -> list[bytes | None]:
    return [await opened.store.of(DEFAULT_TENANT).session_file(session_id, file.sha256) for file in (PLOT, LOG, ALL)]


async def _put(opened: OpenedStore, message: Message, *indexes: int) -> None:
    commit = Commit(session_id=message.session_id, at=NOW, changes=(*FILES, PutMessage(message)))
    await opened.store.commit(commit)


async def test_a_call_refers_to_several_files(opened: OpenedStore) -> None:
    """To those of its result, and to its full output; all come back with the message."""
    answer = make_answer("msg_1", "look", _call(PLOT, LOG, full_output=ALL))
    await opened.store.commit(adding(answer, NOW, FILES))
    assert await opened.store.of(DEFAULT_TENANT).message("ses_1", "msg_1") == answer
    assert await _readable(opened) == [PLOT_BYTES, LOG_BYTES, ALL_BYTES]


async def test_a_session_reads_the_files_of_its_own_messages(opened: OpenedStore) -> None:
    """File parts and results; what only another session refers to is not there."""
    await opened.store.commit(adding(make_answer("msg_1", _call(LOG)), NOW, FILES[:2]))
    await opened.store.commit(adding(make_message("msg_2", PLOT), NOW, ()))
    assert await _readable(opened) == [PLOT_BYTES, LOG_BYTES, None]
    assert await _readable(opened, "ses_2") == [None, None, None]
    with pytest.raises(SessionNotFound):
        await opened.store.of(DEFAULT_TENANT).session_file("ses_none", PLOT.sha256)


async def test_an_empty_file_is_no_missing_one(opened: OpenedStore) -> None:
    """Its bytes are no bytes, not None."""
    empty = make_file(b"", "empty")
    await opened.store.commit(adding(make_message("msg_1", empty), NOW, (PutFile(empty.sha256, b""),)))
    assert await opened.store.of(DEFAULT_TENANT).session_file("ses_1", empty.sha256) == b""


async def test_files_of_a_result_come_when_it_does(opened: OpenedStore) -> None:
    """The call is stored several times on its way; files of the result are kept from the moment it has them."""
    waiting = make_answer("msg_1", "look", ToolUse(name="draw"))
    await opened.store.commit(adding(waiting))
    await _put(opened, make_answer("msg_1", "look", _call(PLOT, PLOT, full_output=PLOT)), 1)
    assert await _readable(opened) == [PLOT_BYTES, None, None]
    again = make_answer("msg_1", "looks", _call(PLOT))
    await _put(opened, again, 0, 1)
    assert await opened.store.of(DEFAULT_TENANT).message("ses_1", "msg_1") == again
    assert await _readable(opened) == [PLOT_BYTES, None, None]


async def test_a_changed_result_leaves_no_bytes_behind(opened: OpenedStore) -> None:
    """A file that only the replaced result had is removed; the others stay."""
    await _put(opened, make_answer("msg_1", _call(PLOT, LOG, full_output=ALL)), 0)
    await _put(opened, make_answer("msg_1", _call(LOG)), 0)
    assert _stored(opened) == {LOG_BYTES}
    assert await _readable(opened) == [None, LOG_BYTES, None]
    await _put(opened, make_answer("msg_1", _call()), 0)
    assert await _readable(opened) == [None, None, None]


async def test_a_result_needs_its_files(opened: OpenedStore) -> None:
    """A reference to bytes that are not stored is refused as a whole."""
    with pytest.raises(StorageError):
        await opened.store.commit(adding(make_answer("msg_1", _call(PLOT))))
    assert await opened.store.of(DEFAULT_TENANT).history("ses_1") == ()


async def test_a_file_stays_as_long_as_anything_refers_to_it(opened: OpenedStore) -> None:
    """Another session's message or result keeps it; the last one takes it along."""
    await opened.store.commit(adding(make_answer("msg_1", _call(PLOT, LOG, full_output=ALL)), NOW, FILES))
    await opened.store.commit(adding(make_message("msg_2", PLOT, session_id="ses_2")))
    await opened.store.commit(adding(make_answer("msg_3", _call(LOG), session_id="ses_2")))
    await opened.store.commit(removing("ses_1"))
    await opened.store.removals()
    assert _stored(opened) == {PLOT_BYTES, LOG_BYTES}
    assert await _readable(opened, "ses_2") == [PLOT_BYTES, LOG_BYTES, None]
    await opened.store.commit(removing("ses_2"))
    await opened.store.removals()
    assert _stored(opened) == set()


async def test_files_go_with_the_message(opened: OpenedStore) -> None:
    """A removed message takes the files of its parts and results, unless another part has them too."""
    queued = make_message("msg_1", PLOT, _call(LOG, ALL), status=MessageStatus.QUEUED)
    await opened.store.commit(adding(queued, NOW, FILES))
    await opened.store.commit(adding(make_answer("msg_2", _call(ALL))))
    await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(RemoveMessage("msg_1"),)))
    assert _stored(opened) == {ALL_BYTES}


async def test_files_survive_a_restart(opened: OpenedStore, tmp_path: Path) -> None:
    """They can be read afterwards, and still go with their session."""
    await opened.store.commit(adding(make_answer("msg_1", _call(PLOT, full_output=ALL)), NOW, FILES))
    await opened.store.aclose()
    async with opened_store(tmp_path) as again:
        assert await _readable(again) == [PLOT_BYTES, None, ALL_BYTES]
        await again.store.commit(removing("ses_1"))
        await again.store.removals()
        assert PLOT_BYTES not in _stored(again)
