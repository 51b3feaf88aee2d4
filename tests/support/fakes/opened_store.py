"""The real store with the real codec on a database of its own, and what it has published."""

import contextlib
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from pathlib import Path

from opencode.event.event_pb2 import WatchEventsResponse
from opencode.event.session_event_pb2 import SessionEvent
from opencode.message.message_pb2 import DisplayMessage, MessageList
from tests.support.fakes.domain_values import NOW
from tests.support.oracles.sound import assert_sound
from turnwire.api.wire.codec import ProtoCodec
from turnwire.ports.codec import Codec
from turnwire.ports.identity.token_book import TokenBook
from turnwire.ports.store import Publisher, StoredEvent
from turnwire.ports.telemetry.observer import Observer
from turnwire.storage.sql.database import Database
from turnwire.storage.sql.store import SqlStore
from turnwire.storage.sqlite.database import SqliteDatabase
from turnwire.storage.sqlite.store import SqliteStore, StorageSettings
from turnwire.storage.tokens import open_tokens

_CODEC = ProtoCodec()


class Engine:
    """Where stores of a test are. This one has a file in each folder."""

    async def open(
        self, folder: Path, retained_events: int, codec: Codec, publish: Publisher, observer: Observer
    ) -> SqlStore:
        """Opens the store of a folder. It forgets no event for its age."""
        settings = StorageSettings(path=folder / "turnwire.db", retained_events_per_session=retained_events)
        return await SqliteStore.open(settings, codec, publish, observer=observer, clock=lambda: NOW)

    def database(self, folder: Path) -> AbstractContextManager[Database]:
        """Opens the database of a folder beside the store, to look at what is stored or to damage it."""
        path = folder / "turnwire.db"
        return closing(sqlite3.connect(path, isolation_level=None, timeout=200, factory=SqliteDatabase))

    async def tokens(self, folder: Path) -> TokenBook:
        """Opens the tokens of callers of the server of a folder."""
        return await open_tokens(str(folder / "turnwire-tokens.db"))

    def assert_sound(self, folder: Path) -> None:
        """Checks that the database of a folder has no damage, and counts what it has."""
        assert_sound(folder / "turnwire.db")


ENGINE = Engine()
"""That of the test; `tests/contract/conftest.py` sets another one."""


@dataclass
class OpenedStore:
    """A store and the events that it published, in order."""

    store: SqlStore
    path: Path
    """The file of SQLite."""
    published: list[StoredEvent] = field(default_factory=list)

    def database(self) -> AbstractContextManager[Database]:
        """Opens the database beside the store; see `Engine.database`."""
        return ENGINE.database(self.path.parent)

    def assert_sound(self) -> None:
        """Checks the database; see `Engine.assert_sound`."""
        ENGINE.assert_sound(self.path.parent)

    def sequences(self) -> list[tuple[str, int, int]]:
        """Returns session, sequence and position of everything published."""
        return [(s.event.session_id, s.event.sequence, s.event.position) for s in self.published]


@contextlib.asynccontextmanager
async def opened_store(
    folder: Path,
    retained_events: int = 10_000,
    codec: Codec = _CODEC,
    observer: Observer = Observer(),  # noqa: B008 - has no state
) -> AsyncIterator[OpenedStore]:
    """Opens the database of a folder, `turnwire.db` for SQLite, and closes it afterwards."""
    published: list[StoredEvent] = []
    store = await ENGINE.open(folder, retained_events, codec, published.extend, observer)
    try:
        yield OpenedStore(store, folder / "turnwire.db", published)
    finally:
        await store.aclose()


def events_in(frames: bytes | Sequence[bytes]) -> list[SessionEvent]:
    """Returns the events in joined or separate frames, as a client reads them."""
    joined = frames if isinstance(frames, bytes) else b"".join(frames)
    return list(WatchEventsResponse.FromString(joined).events)


def kinds_in(frames: bytes | Sequence[bytes]) -> list[str]:
    """Returns the names of the events' kinds."""
    return [event.WhichOneof("kind") or "" for event in events_in(frames)]


def displays_in(frames: bytes) -> list[DisplayMessage]:
    """Returns the display messages in joined frames."""
    return list(MessageList.FromString(frames).messages)
