"""Random traffic: the commands of the table and whatever else there is to do, drawn from a seed.

This is the one generator of traffic for tests that look at something else than the answers: a client behind a bad
network (`tests.support.chaos`), or what a server holds (`tests.support.soak`). What disturbs it, such as a kill, is one
more thing to do.
"""

import asyncio
import contextlib
import itertools
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

import grpc

from opencode.question.question_pb2 import QUESTION_ACTION_DECLINE, AnswerQuestionRequest
from opencode.tool.tool_pb2 import PermissionResponse, SubmitToolResultRequest
from tests.support.clients.conversation import refusal_of, session_of
from tests.support.commits.table import COMMANDS, Case, Command
from tests.support.servers.running import Client

PATIENCE_SECONDS = 240.0
"""For one thing; a busy machine is slow."""

PAUSE_SECONDS = 0.002

EXPECTED = (
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
)
"""Endings of things that come too early, too late or too often."""

MOMENTARY = {"TOOL_CALL_ALREADY_SETTLED", "TOOL_CALL_NOT_READY", "PERMISSION_ALREADY_ANSWERED", "STORAGE_FULL"}
MOMENTARY |= {"QUESTION_ALREADY_ANSWERED"}
"""Why an answer to what a turn waits for may be refused: the turn goes on meanwhile, or the commit fails."""

Thing = Callable[[], Awaitable[None]]


class Traffic:
    """Does one thing after the other at a server, in one session or each in a session of its own."""

    def __init__(self, client: Client, rng: random.Random, session_id: str = "") -> None:
        """Args:
        client: Of the server; may be replaced by another one when the server has another life.
        rng: Decides what is done, and in which order.
        session_id: Where everything is done; "" for sessions that are made for it and deleted again.
        """
        self.client = client
        self.session_id = session_id
        self.done: Counter[str] = Counter()
        """Number of times that each thing was done; `NAME CODE` when it was refused."""
        self._rng = rng
        self._numbers = itertools.count(1)

    def commands(self) -> dict[str, Thing]:
        """Returns those of the table that can be carried out here: with this configuration, and in this session."""
        return {
            name: lambda name=name: self._carry_out(name)
            for name, command in COMMANDS.items()
            if not command.toml and (not self.session_id or _stays(command))
        }

    async def run(self, things: Mapping[str, Thing], until: Callable[[], bool]) -> None:
        """Does things until told to stop, each at least once.

        Raises:
            grpc.aio.AioRpcError: one failed in a way that nothing explains.
            TimeoutError: one hangs.
        """
        left: list[str] = []
        is_first = True
        while is_first or not until():
            if not left:
                left = self._rng.sample(sorted(things), len(things))
            name = left.pop()
            is_first &= bool(left)
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await things[name]()
            except grpc.aio.AioRpcError as error:
                if error.code() not in EXPECTED:
                    raise
                name += f" {error.code().name}"
            self.done[name] += 1

    async def delete(self, *session_ids: str) -> None:
        """Deletes sessions; those that are gone already are no mistake."""
        for session_id in session_ids:
            with contextlib.suppress(grpc.aio.AioRpcError):
                await self.client.sessions.DeleteSession(session_id=session_id)

    async def _carry_out(self, name: str) -> None:
        command, case = COMMANDS[name], Case(f"{name} {next(self._numbers)} {self._rng.random()}")
        if self.session_id:
            case.sessions.append(self.session_id)
        try:
            await command.set_up(self.client, case)
            await command.act(self.client, case)
        finally:
            await self._leave(command, case)

    async def _leave(self, command: Command, case: Case) -> None:
        for session_id in () if command.removes else case.sessions:
            await come_to_rest(self.client, case, session_id)
        if not self.session_id:
            await self.delete(*case.sessions)
        if "upload" in case.ids:
            with contextlib.suppress(grpc.aio.AioRpcError):  # a message has used it up
                await self.client.uploads.DeleteUpload(upload_id=case["upload"].upload_id)


def _stays(command: Command) -> bool:
    """Returns whether a command can be carried out in a session that is there, and leaves it there."""
    return command.is_of_session and not (command.removes or command.lasts or command.asks_people)


async def come_to_rest(client: Client, case: Case, session_id: str) -> None:
    """Answers whatever the turns of a session wait for, until nothing runs or waits."""
    while True:
        session = await session_of(client, session_id)
        if not session.active_turn_id and not session.queued_messages:
            return
        if not await answer_all(client, case, session_id):
            await asyncio.sleep(PAUSE_SECONDS)


async def answer_all(client: Client, case: Case, session_id: str) -> bool:
    """Answers all that a turn waits for. Returns False when there is nothing."""
    waits = []
    calls = (await client.tools.ListOpenToolCalls(session_id=session_id)).calls
    for call in calls:
        request = SubmitToolResultRequest(session_id=session_id, tool_call_id=call.tool_call.id, output="seen")
        if call.tool_call.HasField("lease") and "released" not in case.ids:
            request.lease_id = case["lease"].lease_id
        waits.append(client.tools.SubmitToolResult(request))
    asked = (await client.permissions.ListPermissions(session_id=session_id)).permissions
    for one in asked:
        response = PermissionResponse(session_id=session_id, permission_id=one.id, response="once")
        waits.append(client.permissions.RespondToPermission(response))
    questions = (await client.questions.ListQuestions(session_id=session_id)).questions
    for question in questions:
        answer = AnswerQuestionRequest(session_id=session_id, question_id=question.question_id)
        answer.action = QUESTION_ACTION_DECLINE
        waits.append(client.questions.AnswerQuestion(answer))
    for waiting in waits:
        try:
            await waiting
        except grpc.aio.AioRpcError as error:
            assert refusal_of(error).reason in MOMENTARY, refusal_of(error)
    return bool(waits)
