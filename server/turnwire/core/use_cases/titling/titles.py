"""Gives a session a title once an answer has ended, when it has none and the configuration asks for it.

Nobody waits for it: the session goes on meanwhile, and when the call fails, or the server stops, there is no title.
"""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable

import structlog

from turnwire.core.ending.spending import spent_by_call
from turnwire.core.environment import Environment
from turnwire.core.quotas.checks import spending_exceeded
from turnwire.core.use_cases.titling.calls import TitleCall
from turnwire.core.use_cases.titling.words import cleaned_title, request_of
from turnwire.core.work import Work
from turnwire.domain.conversation.messages import FinishReason, ModelRef
from turnwire.domain.conversation.turns import Turn
from turnwire.domain.errors import DomainError, ProviderStreamFailed
from turnwire.ports.commit import Committed
from turnwire.ports.telemetry.tracing import leave_trace

MAX_AT_ONCE = 4
"""Calls for titles at the same time, apart from those of turns, so that turns do not wait for titles."""
MAX_WAITING = 1000
"""Sessions that wait for a call; one more gets no title after this answer."""
MAX_TRIED = 100_000
"""Sessions that are remembered as tried in this run, newest first."""

StoreTitle = Callable[[Turn, str, Work], Awaitable[bool]]
"""Stores a title unless the session has one by now, and the work in any case, in one commit. Returns whether it did."""

OFFLINE = "offline"
"""The built-in provider, whose models write no titles unless the configuration names one."""

log = structlog.get_logger()


class Titles:
    """Owns the tasks that make titles: at most one for a session, and `MAX_WAITING` in all.

    `_tried` has the sessions for which a model was asked in this run: one call for each, so that a model that fails is
    not asked after every answer. `cancel` and `aclose` end tasks.
    """

    def __init__(self, environment: Environment, store_title: StoreTitle) -> None:
        """Takes the ports, and what stores a title."""
        self._environment = environment
        self._store_title = store_title
        self._jobs: dict[str, asyncio.Task[None]] = {}
        self._tried: OrderedDict[str, None] = OrderedDict()
        self._calls = asyncio.Semaphore(MAX_AT_ONCE)
        self._is_closing = False

    def note_ended(self, turn: Turn) -> None:
        """Begins to make a title, if one is wanted after this turn. Returns at once."""
        session_id = turn.session_id
        is_answer = turn.steps > 0 and turn.finish_reason in (FinishReason.STOP, FinishReason.LENGTH)
        if not (self._environment.settings.titles.enabled and is_answer) or self._is_closing:
            return
        if session_id in self._jobs or session_id in self._tried or len(self._jobs) >= MAX_WAITING:
            return
        task = asyncio.create_task(self._make(turn), name="session title")
        self._jobs[session_id] = task
        task.add_done_callback(lambda _: self._jobs.pop(session_id, None))

    async def cancel(self, session_id: str) -> None:
        """Ends the call for a session that is being deleted; what it has used is on its way to the store then."""
        task = self._jobs.get(session_id)
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def aclose(self) -> None:
        """Ends all calls, and starts no other. Idempotent."""
        self._is_closing = True
        for session_id in list(self._jobs):
            await self.cancel(session_id)

    async def _make(self, turn: Turn) -> None:
        leave_trace()
        try:
            if (await self._environment.store.of(turn.tenant).cached_session(turn.session_id)).title:
                return
            model = self._model_for(turn)
            if model is None or self._is_spent(turn):
                return
            async with self._calls:
                await self._ask(turn, model)
        except (DomainError, TimeoutError) as error:
            reason = error.reason if isinstance(error, DomainError) else "TIMEOUT"
            log.warning("session_not_titled", session_id=turn.session_id, reason=reason)
        except Exception as error:  # nobody awaits it
            log.error("session_not_titled", session_id=turn.session_id, exc_info=error)

    async def _ask(self, turn: Turn, model: ModelRef) -> None:
        environment, settings = self._environment, self._environment.settings.titles
        words = await self._words(turn)
        if not words:
            return
        self._note_tried(turn.session_id)
        call = TitleCall(environment, turn, model)
        is_stored = False
        try:
            async with asyncio.timeout(settings.max_seconds):
                title = cleaned_title(await call.ask(words), settings.max_title_characters)
            if not title:
                raise ProviderStreamFailed("the model wrote no title")
            is_stored = True
            await self._store_title(turn, title, self._spent(turn, call))
        finally:
            if not is_stored:
                self._pay(turn, call)

    async def _words(self, turn: Turn) -> str:
        """Returns what the model reads; "" when there is nothing. The messages that it is of may be large."""
        store = self._environment.store.of(turn.tenant)
        session_id, message_id = turn.session_id, turn.user_message_id
        async with self._environment.reads.for_question(store, turn.tenant, session_id, message_id):
            asked = await store.question(session_id, message_id)
            return request_of(asked.message, asked.behind, self._environment.settings.titles.max_input_characters)

    def _model_for(self, turn: Turn) -> ModelRef | None:
        settings = self._environment.settings.titles
        if settings.model is not None:
            return settings.model
        cheap = (model for model in settings.models if model.provider_id == turn.model.provider_id)
        return next(cheap, None if turn.model.provider_id == OFFLINE else turn.model)

    def _is_spent(self, turn: Turn) -> bool:
        environment, now = self._environment, self._environment.clock()
        account = environment.store.of(turn.tenant).account(now)
        return spending_exceeded(turn.tenant, environment.settings.quotas_of(turn.tenant), account, now) is not None

    def _spent(self, turn: Turn, call: TitleCall) -> Work:
        return Work() if call.paid is None else spent_by_call(turn, call.paid, self._environment.clock())

    def _pay(self, turn: Turn, call: TitleCall) -> None:
        """Counts a call without a title, without waiting."""
        spent = self._spent(turn, call)
        if spent.changes:
            paying = self._environment.commit(turn.tenant, turn.session_id, spent, self._environment.clock())
            paying.add_done_callback(lambda done: self._note_unpaid(turn, done))

    @staticmethod
    def _note_unpaid(turn: Turn, paying: asyncio.Future[Committed]) -> None:
        if not paying.cancelled() and paying.exception() is not None:
            log.error("title_not_counted", session_id=turn.session_id, turn_id=turn.turn_id)

    def _note_tried(self, session_id: str) -> None:
        self._tried[session_id] = None
        if len(self._tried) > MAX_TRIED:
            with contextlib.suppress(KeyError):
                self._tried.popitem(last=False)
