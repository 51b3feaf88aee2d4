"""The ports and settings that use cases need, in one value."""

from asyncio import Future
from collections import Counter
from copy import copy
from dataclasses import dataclass, field
from datetime import datetime

from turnwire.core.conversation.conversations import LiveConversations
from turnwire.core.detached import DetachedTasks
from turnwire.core.memory import ReadBudget, WaitingCalls
from turnwire.core.servers import Servers
from turnwire.core.settings import CoreSettings
from turnwire.domain.conversation.events import EphemeralKind, Event
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.conversation.turns import Turn
from turnwire.domain.fair_semaphore import FairSemaphore
from turnwire.domain.ids import IdMaker
from turnwire.domain.principal import Principal
from turnwire.feed.memory import Feed
from turnwire.ports.clock import Clock
from turnwire.ports.commit import Commit, Committed, RequireQuota, Work
from turnwire.ports.provider import Providers
from turnwire.ports.store import Store
from turnwire.ports.telemetry.observer import Observer
from turnwire.ports.telemetry.tracing import NO_TRACER, Tracer
from turnwire.ports.tools import ServerTools


@dataclass(eq=False)
class Environment:
    """The ports and settings. Made once by the composition root, which alone replaces its settings and providers."""

    store: Store
    feed: Feed
    providers: Providers
    settings: CoreSettings
    clock: Clock
    new_id: IdMaker
    tools: ServerTools
    observer: Observer = Observer()  # noqa: RUF009 - has no state
    tracer: Tracer = NO_TRACER
    servers: Servers | None = None
    """The servers that share the database; None when this is the only one."""
    detached: DetachedTasks = field(default_factory=DetachedTasks)
    """Requests that complete even if their callers are gone."""
    open_questions: Counter[str] = field(default_factory=Counter)
    """Open questions of the running turns, by tenant; see `core.tools.calls.count_requests`."""
    permissions: Counter[str] = field(default_factory=Counter)
    """Permission requests of the steps with waiting calls, by tenant; an answered one counts until its step has ended.
    """
    conversations: LiveConversations = field(init=False)
    prompts: FairSemaphore = field(init=False)
    """Memory for prompts on their way to models."""
    reads: ReadBudget = field(init=False)
    """Memory for messages that wait or are to be answered, until the start of their turns or a change is stored."""
    waiting_calls: WaitingCalls = field(init=False)
    """Counts the answers whose tool calls wait."""

    def __post_init__(self) -> None:
        """Begins to follow the commits of the store."""
        limits = self.settings.limits
        self.conversations = LiveConversations(self.store)
        self.prompts = FairSemaphore(limits.max_prompts_bytes)
        self.reads, self.waiting_calls = ReadBudget(), WaitingCalls(limits.max_waiting_calls_bytes)

    def of_now(self) -> "Environment":
        """Returns a copy that keeps the present settings and providers and shares everything else: for a turn that
        begins.
        """
        return copy(self)

    async def session(self, principal: Principal, session_id: str) -> Session:
        """Returns a caller's session. Every use case and watch of one session calls this before anything else.

        Raises:
            SessionNotFound: there is no such session, or another tenant has it.
            StorageError: the session could not be read.
        """
        return await self.store.of(principal.tenant).cached_session(session_id)

    def commit(self, tenant: str, session_id: str, work: Work, at: datetime) -> Future[Committed]:
        """Stores work in one session of a tenant in one transaction; see `Store.commit`."""
        return self.store.commit(
            Commit(tenant=tenant, session_id=session_id, at=at, changes=work.changes, events=work.events)
        )

    def within_quotas(self, tenant: str) -> Work:
        """Returns a requirement that fails a commit which stores more than a tenant may have; empty without a quota."""
        limits = self.settings.quotas_of(tenant)
        required = RequireQuota(limits.max_sessions or 0, limits.max_stored_bytes or 0)
        return Work((required,)) if required != RequireQuota(0, 0) else Work()

    def publish(self, turn: Turn, kind: EphemeralKind) -> None:
        """Publishes an ephemeral event of a turn to the watchers of its session, and of all sessions of its tenant."""
        self.feed.publish(turn.tenant, Event(session_id=turn.session_id, kind=kind))
