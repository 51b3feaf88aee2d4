"""The ports and settings that use cases work with, in one value."""

from asyncio import Future
from dataclasses import dataclass
from datetime import datetime

from turnwire.core.settings import CoreSettings
from turnwire.core.work import Work
from turnwire.domain.conversation.events import EphemeralKind, Event
from turnwire.domain.ids import IdMaker
from turnwire.ports.clock import Clock
from turnwire.ports.commit import Commit, Committed
from turnwire.ports.feed import Feed
from turnwire.ports.observer import NoObserver, Observer
from turnwire.ports.provider import Providers
from turnwire.ports.store import Store
from turnwire.ports.tools import NoServerTools, ServerTools


@dataclass(frozen=True)
class Environment:
    """The ports and settings. Made once by the composition root."""

    store: Store
    feed: Feed
    providers: Providers
    settings: CoreSettings
    clock: Clock
    new_id: IdMaker
    tools: ServerTools = NoServerTools()  # noqa: RUF009 - has no state
    observer: Observer = NoObserver()  # noqa: RUF009 - has no state

    def commit(self, session_id: str, work: Work, at: datetime) -> Future[Committed]:
        """Stores work in one session in one transaction; see `Store.commit`."""
        return self.store.commit(Commit(session_id=session_id, at=at, changes=work.changes, events=work.events))

    def publish(self, session_id: str, kind: EphemeralKind) -> None:
        """Publishes an event that is not stored to the watchers of a session."""
        self.feed.publish(Event(session_id=session_id, kind=kind))
