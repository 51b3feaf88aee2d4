"""The real store with the real codec on a file, and what it has published."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from opencode.event.event_pb2 import WatchEventsResponse
from opencode.event.session_event_pb2 import SessionEvent
from opencode.message.message_pb2 import DisplayMessage, MessageList
from tests.support.fakes.domain_values import NOW
from turnwire.api.wire.codec import ProtoCodec
from turnwire.ports.codec import Codec
from turnwire.ports.store import StoredEvent
from turnwire.ports.telemetry.observer import Observer
from turnwire.storage.sqlite.store import SqliteStore, StorageSettings

_CODEC = ProtoCodec()


@dataclass
class OpenedStore:
    """A store and the events that it published, in order."""

    store: SqliteStore
    path: Path
    published: list[StoredEvent] = field(default_factory=list)

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
    """Opens `folder/turnwire.db` and closes it afterwards. It forgets no event for its age."""
    path = folder / "turnwire.db"
    published: list[StoredEvent] = []
    settings = StorageSettings(path=path, retained_events_per_session=retained_events)
    store = await SqliteStore.open(settings, codec, published.extend, observer=observer, clock=lambda: NOW)
    try:
        yield OpenedStore(store, path, published)
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
