"""What every use case works with: the ports and the settings, in one value."""

from asyncio import Future
from dataclasses import dataclass
from datetime import datetime

import msgspec
import structlog

from turnwire.core.settings import CoreSettings
from turnwire.core.work import Work
from turnwire.domain.conversation.events import EphemeralKind, Event
from turnwire.domain.conversation.messages import Message, ModelRef
from turnwire.domain.ids import IdMaker
from turnwire.ports.clock import Clock
from turnwire.ports.commit import Commit, Committed
from turnwire.ports.feed import Feed
from turnwire.ports.provider import Providers
from turnwire.ports.store import Store
from turnwire.ports.tools import NoServerTools, ServerTools

log = structlog.get_logger()


@dataclass(frozen=True)
class Environment:
    """Made once by the composition root."""

    store: Store
    feed: Feed
    providers: Providers
    settings: CoreSettings
    clock: Clock
    new_id: IdMaker
    tools: ServerTools = NoServerTools()  # noqa: RUF009 - has no state

    def commit(self, session_id: str, work: Work, at: datetime) -> Future[Committed]:
        """Stores work in one session; see `Store.commit`."""
        return self.store.commit(Commit(session_id=session_id, at=at, changes=work.changes, events=work.events))

    def priced(self, message: Message) -> Message:
        """Returns a model's message with the cost of its usage, as far as the price of the model is known."""
        run = message.model_run
        if run is None or message.usage is None or message.cost_pico_usd is not None:
            return message
        model = ModelRef(run.provider_id, run.model_requested)
        try:
            cost = self.providers.cost_pico_usd(model, message.usage)
        except Exception as error:  # an answer must not be lost for want of a price
            log.error("price_not_found", provider=model.provider_id, model=model.model_id, exc_info=error)
            return message
        return msgspec.structs.replace(message, cost_pico_usd=cost)

    def publish(self, session_id: str, kind: EphemeralKind) -> None:
        """Tells watchers of a session something that is not stored."""
        self.feed.publish(Event(session_id=session_id, kind=kind))
