"""Store whose files are deleted while they are open."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.support.fakes.domain_values import adding, creating, make_message
from tests.support.fakes.opened_store import opened_store
from turnwire.api.wire.codec import ProtoCodec
from turnwire.domain.errors import StorageCorrupt, StorageError
from turnwire.domain.principal import DEFAULT_TENANT
from turnwire.ports.pages import Page
from turnwire.ports.store import FileIdentity, StoredEvent
from turnwire.storage.sqlite.store import SqliteStore, StorageSettings


class Losing:
    """A store, what it published, and which losses it told of."""

    def __init__(self) -> None:
        """Nothing has happened."""
        self.published: list[StoredEvent] = []
        self.losses: list[StorageError] = []
        self.store: SqliteStore

    def lose(self, looks: int) -> None:
        """Makes the files look lost after they were looked at so many times."""
        left = iter([None] * looks)
        files = self.store._keeper.files
        files.loss: Callable[[], StorageCorrupt | None] = lambda: next(left, StorageCorrupt("lost"))


@pytest.fixture
async def losing(tmp_path: Path) -> AsyncIterator[Losing]:
    """A store with one session."""
    found = Losing()
    settings = StorageSettings(path=tmp_path / "turnwire.db")
    found.store = await SqliteStore.open(settings, ProtoCodec(), found.published.extend, found.losses.append)
    await found.store.commit(creating())
    yield found
    await found.store.aclose()


@pytest.mark.parametrize("again", [False, True])
async def test_own_files_are_known_once_it_is_open(tmp_path: Path, again: bool) -> None:
    """Database, WAL, index and lock file, of a new database and of one that nothing was written to yet."""
    if again:
        async with opened_store(tmp_path):
            pass
    async with opened_store(tmp_path) as opened:
        names = ["turnwire.db", "turnwire.db-wal", "turnwire.db-shm", "turnwire.db.lock"]
        assert opened.store.own_files() == {FileIdentity.of((tmp_path / name).stat()) for name in names}


async def test_loss_is_told_once_and_ends_all_storing(losing: Losing, tmp_path: Path) -> None:
    """Each unit fails, now and later, even when the file is back; reading goes on."""
    (tmp_path / "turnwire.db-wal").rename(tmp_path / "away")
    messages = [adding(make_message(f"msg_{number}", "a")) for number in range(3)]
    answers = await asyncio.gather(*map(losing.store.commit, messages), return_exceptions=True)
    assert [type(answer) for answer in answers] == [StorageCorrupt] * 3
    (tmp_path / "away").rename(tmp_path / "turnwire.db-wal")
    with pytest.raises(StorageCorrupt):
        await losing.store.commit(messages[0])
    assert [type(loss) for loss in losing.losses] == [StorageCorrupt]
    assert (await losing.store.of(DEFAULT_TENANT).messages("ses_1", Page())).messages == ()
    assert len(losing.published) == 1


@pytest.mark.slow
async def test_what_cannot_be_told_ends_all_storing(losing: Losing) -> None:
    """Watchers may have missed it. Its callers read no error that says that nothing is stored; others are refused."""

    def fail(_: list[StoredEvent]) -> None:
        raise ValueError("a bug")

    losing.store._writer._publish = fail
    messages = [adding(make_message(f"msg_{number}", "a")) for number in range(3)]
    answers = await asyncio.gather(*map(losing.store.commit, messages), return_exceptions=True)
    assert [type(answer) for answer in answers] == [ValueError] * 3
    with pytest.raises(StorageError, match="a bug"):
        await losing.store.commit(messages[0])
    assert [type(loss) for loss in losing.losses] == [StorageError]


async def test_unit_is_rolled_back_when_the_loss_is_seen_before_it(losing: Losing) -> None:
    """Nothing of it is stored."""
    losing.lose(looks=0)
    with pytest.raises(StorageCorrupt):
        await losing.store.commit(adding(make_message("msg_1", "a")))
    assert (await losing.store.of(DEFAULT_TENANT).messages("ses_1", Page())).messages == ()


async def test_unit_is_not_confirmed_when_the_loss_is_seen_after_it(losing: Losing) -> None:
    """The file may have gone before the unit was in it."""
    losing.lose(looks=1)
    with pytest.raises(StorageCorrupt):
        await losing.store.commit(adding(make_message("msg_1", "a")))
    assert (len(losing.losses), len(losing.published)) == (1, 1)
