"""Messages that are to be answered."""

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from functools import partial
from typing import Any

from tests.support.fakes.domain_values import make_message, make_session, make_turn
from turnwire.core.actor import Actor, Done, Now
from turnwire.core.environment import Environment
from turnwire.core.tools.calls import ToolCalls, count_requests
from turnwire.core.tools.open_calls import OpenCalls
from turnwire.core.tools.results import CallResult
from turnwire.core.turns.recovery import ResumePoint
from turnwire.core.turns.registry import Turns
from turnwire.core.turns.run import TurnRun
from turnwire.core.turns.schedule import Accepted, AcceptMessage, Asking, Running, Schedule
from turnwire.core.use_cases.tool_results import ToolResults
from turnwire.domain.conversation.messages import Message, Part
from turnwire.domain.conversation.permissions import PermissionRequest
from turnwire.domain.conversation.questions import HeldQuestion
from turnwire.domain.conversation.turns import BusyPolicy, Turn
from turnwire.domain.fair_semaphore import FairSemaphore
from turnwire.ports.commit import Committed, PutMessage, PutTurn, Work

POLICIES = {"i": BusyPolicy.INTERRUPT, "s": BusyPolicy.STEER, "r": BusyPolicy.REJECT}


def make_accept(name: str, *, max_waiting: int = 100, **settings: Any) -> AcceptMessage:
    """Returns a message that is to be answered; the first letter of its name is its policy, or else it waits."""
    turn = make_turn(f"trn_{name}", user_message_id=f"msg_{name}", **settings)
    return AcceptMessage(
        turn=turn,
        message=make_message(f"msg_{name}", name, turn_id=turn.turn_id),
        when_busy=POLICIES.get(name[0], BusyPolicy.QUEUE),
        store=_stored,
        max_waiting=max_waiting,
        size_bytes=100,
    )


def send(turns: Turns, name: str, **settings: Any) -> "Future[Done[Schedule]]":
    """Sends a message of that name to its session."""
    return turns.accept(make_accept(name, **settings))


async def deliver(turns: Turns, part_id: str, result: CallResult) -> tuple[Part, int]:
    """Delivers the result of a call of the first session."""
    return await ToolResults(turns._environment, turns).deliver(make_session(), part_id, result, "")


class LoneRun(TurnRun):
    """The run of a turn that runs in its session already."""

    def __init__(
        self,
        environment: Environment,
        turn: Turn,
        resume: ResumePoint | None = None,
        take_in: Callable[[TurnRun], Awaitable[None]] | None = None,
    ) -> None:
        """Takes what a run takes, but for the session."""
        self.lone_environment = environment
        schedule = Schedule(Asking(turn.header()), is_announced=True)
        self.actor = Actor(schedule, _store_of(environment, turn), environment.clock, self._count)
        super().__init__(environment, turn, self.actor, resume, take_in)

    def _count(self, before: Schedule, after: Schedule) -> None:
        count_requests(self.lone_environment, self.turn.tenant, before.calls, after.calls)

    async def run(self, slots: FairSemaphore) -> Work | None:  # type: ignore[override]
        """Returns the work that ends the turn; None when it is suspended."""
        end = await super().run(slots)
        await self.actor.idle()
        running = self.actor.state.phase
        assert isinstance(running, Running)
        return end.close(running, self.lone_environment.clock())


def make_calls(
    environment: Environment,
    turn: Turn,
    message: Message,
    client_tools: frozenset[str],
    permissions: Iterable[PermissionRequest] = (),
    *,
    questions: Iterable[HeldQuestion] = (),
) -> ToolCalls:
    """Returns the calls of a message that is stored, with an actor of their own."""
    now = Now(environment.clock(), asyncio.get_running_loop().time())
    timeout = environment.settings.limits.question_timeout
    calls = OpenCalls.of(message, client_tools, permissions, questions, question_timeout=timeout, now=now)
    count = partial(count_requests, environment, turn.tenant)
    count(None, calls)
    return ToolCalls(environment, turn, Actor(calls, _store_of(environment, turn), environment.clock, count))


def _store_of(environment: Environment, turn: Turn) -> Callable[[Work, datetime], "Future[Committed]"]:
    return partial(environment.commit, turn.tenant, turn.session_id)


def _stored(accepted: Accepted) -> Work:
    return Work((PutTurn(accepted.turn), PutMessage(accepted.message)))
