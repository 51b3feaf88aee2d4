"""Each commit of each command fails, or is the last one before kill -9.

A commit that fails leaves the state as it was, and every caller knows: the caller of the command gets the error when it
waits for that commit, all readers see what they saw before, and what goes on by itself is stored later. A kill after a
commit leaves what was acknowledged, and nothing by half. In both cases the same call, made again, has happened once,
and all comes to rest.

`tests.support.commits.table` has the commands; `tests.support.commits.faults` says what fails, and when a kill is.
"""

import asyncio
import contextlib
import copy
import itertools
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pb2 import MethodOptions

from opencode.event.session_event_pb2 import SessionEvent
from opencode.file.upload_pb2 import GetUploadRequest
from opencode.message.content_pb2 import MESSAGE_STATUS_QUEUED, MESSAGE_STATUS_STREAMING, MESSAGE_TYPE_TOOL_RESULT
from opencode.turn.turn_pb2 import TURN_STATUS_ENDED
from tests.support.clients.conversation import (
    Watch,
    displayed,
    messages_of,
    refusal_of,
    session_of,
    until_at_rest,
    watching,
)
from tests.support.clients.every_method import METHODS
from tests.support.commits.faults import DATABASE, Faults, counted, counted_at_rest, short_pauses
from tests.support.commits.table import COMMANDS, RULES, Case, Command
from tests.support.commits.traffic import come_to_rest
from tests.support.oracles.fold import SessionFold, comparable
from tests.support.oracles.sound import problems
from tests.support.servers.mcp import ASKER, ENVIRON, http_server, own_port, ready
from tests.support.servers.moving import small_parts
from tests.support.servers.running import Client, connect, running_server
from turnwire.app import Server

SECONDS = 30
"""Until somebody who waits counts as one who waits for ever."""

_names = itertools.count(1)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits before trying again, and an import has several parts."""
    short_pauses(monkeypatch)
    small_parts(monkeypatch)


@pytest.fixture(scope="module")
async def asker() -> AsyncIterator[str]:
    """The configuration of a program whose tools ask people."""
    with own_port() as port:
        async with http_server(port, program=ASKER):
            yield f'[mcp.web]\nurl = "http://127.0.0.1:{port}/mcp"\n'


def new_case() -> Case:
    """Returns a case with a name for its request."""
    return Case(f"request {next(_names)}")


async def seen(client: Client, case: Case) -> dict[str, Any]:
    """Returns what readers see of the sessions of a case, and whether its uploads are there."""
    shown: dict[str, Any] = {}
    sessions = (await client.sessions.ListSessions()).sessions
    shown["sessions"] = sorted(one.id for one in sessions)
    for session_id in case.sessions:
        one = {"session_id": session_id}
        session = await client.sessions.GetSession(**one)
        session.resume_token = ""
        listed = await client.messages.ListMessages(**one)
        listed.resume_token = ""
        shown[session_id] = (
            session,
            listed,
            await displayed(client, session_id),
            await client.turns.ListQueue(**one),
            await client.turns.ListTurns(**one),
            await client.permissions.ListPermissions(**one),
            await client.questions.ListQuestions(**one),
            await client.tools.ListOpenToolCalls(**one),
        )
    if "upload" in case.ids:
        request = GetUploadRequest(upload_id=case["upload"].upload_id)
        shown["upload"] = await client.uploads.GetUpload(request)
    return shown


async def until_read(client: Client, case: Case, watch: Watch) -> None:
    """Answers whatever the turns of a session wait for, until nothing runs or waits and all that is stored was read."""
    assert watch.fold is not None
    await come_to_rest(client, case, watch.fold.session_id)
    await until_at_rest(client, watch)


async def session_or_none(client: Client, session_id: str) -> Any:
    """Returns a session; None when it is gone."""
    try:
        return await session_of(client, session_id)
    except grpc.aio.AioRpcError as error:
        assert error.code() is grpc.StatusCode.NOT_FOUND
        return None


async def settled(client: Client, case: Case) -> None:
    """Waits after a start until each turn of a case has ended, or waits for people or clients again."""
    for session_id in case.sessions:
        while True:
            session = await session_or_none(client, session_id)
            if session is None or session.open_requests or not (session.active_turn_id or session.queued_messages):
                break
            await asyncio.sleep(0.002)


async def at_rest(server: Server) -> None:
    """Waits until a server holds nothing of what was done."""
    await until_equal(lambda: counted(server), lambda: counted_at_rest(server))


async def until_equal(found: Callable[[], Any], wanted: Callable[[], Any]) -> None:
    """Waits until something is as it must be, and fails with the difference when it does not become so."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SECONDS / 2):
            while found() != wanted():
                await asyncio.sleep(0.002)
    assert found() == wanted()


async def check_session(client: Client, session_id: str, live: SessionFold | None, *, is_disturbed: bool) -> None:
    """Checks that a session is at rest and whole, and that its events tell what its lists show."""
    one = {"session_id": session_id}
    listed = await messages_of(client, session_id)
    assert len({message.message_id for message in listed}) == len(listed)
    assert not [m for m in listed if m.status in (MESSAGE_STATUS_STREAMING, MESSAGE_STATUS_QUEUED)]
    for message in listed:
        for part in message.parts:
            if part.HasField("tool_use") and message.turn_id:
                assert part.tool_use.status in ("success", "error"), part.tool_use
    shown = {m.message_id for m in await displayed(client, session_id)}
    assert shown == {m.message_id for m in listed if m.type != MESSAGE_TYPE_TOOL_RESULT}
    turns = (await client.turns.ListTurns(**one)).turns
    assert [turn.status for turn in turns] == [TURN_STATUS_ENDED] * len(turns)
    failures = {turn.failure.reason for turn in turns if turn.HasField("failure")}
    assert failures <= ({"STORAGE_FULL", "SERVER_RESTARTED"} if is_disturbed else set())
    assert not (await client.turns.ListQueue(**one)).entries
    assert not (await client.permissions.ListPermissions(**one)).permissions
    assert not (await client.questions.ListQuestions(**one)).questions
    assert not (await client.tools.ListOpenToolCalls(**one)).calls
    replayed = SessionFold(session_id)
    async with watching(client, session_id, replayed, after_sequence=0) as watch:
        await watch.until_kind("caught_up")
    for fold in (replayed, *([] if live is None else [live])):
        if not fold.rereads:  # else the client reads the list anyway
            assert comparable(fold.listed()) == comparable(listed)
        assert not fold.open_turns
        assert not fold.permissions
        assert not fold.questions
    ended = [turn.turn_id for turn in turns if turn.end_sequence]
    assert {*ended} <= {*replayed.ended_turns}


def facts_of(event: SessionEvent) -> tuple[str, str]:
    """Returns what an event stays: a replay may show its subject as it is then."""
    return event.WhichOneof("kind") or "", event.turn_id


Told = dict[tuple[str, int], tuple[int, str, str]]
"""The stored events that a client has got, by session and sequence: how many commits were durable, and the facts."""


@dataclass
class Recorded:
    """A command that was carried out, with copies of the database."""

    case: Case
    """As it was before the call."""
    commits: int
    """How many there were until all was at rest."""
    acknowledged: int
    """How many of them were durable when the call was answered."""
    told: Told


class Fault:
    """One server with faults, and its client."""

    def __init__(self, client: Client, faults: Faults, command: Command) -> None:
        """Takes a server that runs."""
        self.client = client
        self.faults = faults
        self.command = command

    async def fail(self, number: int, count: int) -> bool:
        """Carries the command out, whose commits fail from one on, so many in a row. Returns whether any failed."""
        client, command, case = self.client, self.command, new_case()
        await command.set_up(client, case)
        await settled(client, case)
        before, held = await seen(client, case), self.faults.counted()
        async with asyncio.timeout(SECONDS), contextlib.AsyncExitStack() as stack:
            watches = [await self._watch(stack, one) for one in case.sessions]
            self.faults.fail(number, count)
            refusal = await self._act(case)
            is_own, may_be = number in command.own, count > 1 and number < max(command.own, default=0)
            assert refusal == ("STORAGE_FULL" if is_own else "") or may_be, f"the call, when commit {number} fails"
            case.disturbed_at = 0 if is_own and count == 1 else number
            if refusal:
                if number not in command.later:
                    assert await seen(client, case) == before
                    await until_equal(self.faults.counted, lambda: held)
                self.faults.heal()
                assert await self._act(case) == ""
            await self._come_to_rest(stack, case, watches)
            self.faults.heal()
            assert await self._act(case) == (command.late or command.repeated)
            await self._check(case, [watch.fold for watch in watches])
        return self.faults.failed > 0

    async def record(self, folder: Path) -> "Recorded":
        """Carries the command out until all is at rest, and copies the database after each commit."""
        client, command, case = self.client, self.command, new_case()
        await command.set_up(client, case)
        await settled(client, case)
        before = copy.deepcopy(case)
        told: Told = {}
        async with asyncio.timeout(SECONDS), contextlib.AsyncExitStack() as stack:
            watches = [await self._watch(stack, one) for one in case.sessions]
            for session_id in case.sessions:
                watch = await self._watch(stack, session_id)
                telling = asyncio.create_task(self._note(watch, told))
                stack.callback(telling.cancel)
            self.faults.copy_each(folder)
            assert await self._act(case) == ""
            acknowledged = self.faults.durable
            await self._come_to_rest(stack, case, watches)
            commits = self.faults.durable
            self.faults.copy_no_more()
            await self._check(case, [watch.fold for watch in watches])
        return Recorded(before, commits, acknowledged, told)

    async def _note(self, watch: Watch, told: "Told") -> None:
        """Notes the events of a watch, each with the commits that were durable when it came."""
        while events := await watch.batch():
            at = self.faults.durable
            told.update({(e.session_id, e.sequence): (at, *facts_of(e)) for e in events if e.sequence})

    async def go_on(self, recorded: "Recorded", number: int) -> None:
        """Checks a server that has started on what a kill after a commit has left."""
        case = copy.deepcopy(recorded.case)
        case.disturbed_at = number
        case.is_unanswered = number < recorded.acknowledged
        async with asyncio.timeout(SECONDS):
            await self._go_on(case, recorded, number)

    async def _go_on(self, case: Case, recorded: "Recorded", number: int) -> None:
        client, command = self.client, self.command
        await settled(client, case)
        for session_id in () if command.removes else case.sessions:
            async with contextlib.AsyncExitStack() as stack:
                watch = await self._watch(stack, session_id)
                await watch.until_kind("caught_up")
            now = {event.sequence: facts_of(event) for event in watch.events if event.sequence}
            for (told_of, sequence), (at, *facts) in recorded.told.items():
                assert told_of != session_id or at > number or now.get(sequence) == tuple(facts)
        repeated = await self._act(case)
        assert repeated in {command.repeated, command.late or command.repeated, *([""] if case.is_unanswered else [])}
        async with contextlib.AsyncExitStack() as stack:
            watches = [] if command.removes else [await self._watch(stack, one) for one in case.sessions]
            await self._come_to_rest(stack, case, watches)
            assert await self._act(case) == (command.late or command.repeated)
            await self._check(case, [watch.fold for watch in watches])

    async def _watch(self, stack: contextlib.AsyncExitStack, session_id: str) -> Watch:
        fold = SessionFold(session_id)
        return await stack.enter_async_context(watching(self.client, session_id, fold, after_sequence=0))

    async def _come_to_rest(self, stack: contextlib.AsyncExitStack, case: Case, watches: list[Watch]) -> None:
        """Lets all sessions of a case come to rest, also those that the call has made."""
        if self.command.removes:
            return
        known = {watch.fold.session_id for watch in watches if watch.fold is not None}
        watches += [await self._watch(stack, one) for one in case.sessions if one not in known]
        for watch in watches:
            await until_read(self.client, case, watch)
        await self.command.at_rest(self.client, case)

    async def _act(self, case: Case) -> str:
        """Makes the call. Returns why it was refused; "" when it was not."""
        try:
            await self.command.act(self.client, case)
        except grpc.aio.AioRpcError as error:
            return refusal_of(error).reason
        return ""

    async def _check(self, case: Case, folds: list[SessionFold | None]) -> None:
        await self.command.there(self.client, case)
        if self.command.removes:
            return
        known = {fold.session_id: fold for fold in folds if fold is not None}
        for session_id in case.sessions:
            async with contextlib.AsyncExitStack() as stack:
                await until_read(self.client, case, await self._watch(stack, session_id))
            await check_session(self.client, session_id, known.get(session_id), is_disturbed=case.disturbed_at > 0)


@contextlib.asynccontextmanager
async def serving(folder: Path, command: Command, asker: str) -> AsyncIterator[Fault]:
    """Runs a server for a command; what it holds and has stored at the end is checked."""
    toml = RULES + command.toml + (asker if command.asks_people else "")
    async with running_server(folder, toml, ENVIRON) as server:
        async with connect(server.address) as client:
            if command.asks_people:
                await ready(client)
            yield Fault(client, Faults(server), command)
        await at_rest(server)
    assert problems(folder / DATABASE) == []


def test_every_command_is_in_the_table() -> None:
    """All methods but those that say that they store nothing."""
    without = {
        name
        for name, method in METHODS.items()
        if method.GetOptions().idempotency_level == MethodOptions.NO_SIDE_EFFECTS
    }
    assert {command.method for command in COMMANDS.values()} == {*METHODS} - without


@pytest.mark.matrix
@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if command.own])
async def test_a_call_whose_commit_fails_has_changed_nothing(tmp_path: Path, asker: str, name: str) -> None:
    """Its caller gets the error, readers see what they saw before, and the same call has one effect later."""
    async with serving(tmp_path, COMMANDS[name], asker) as fault:
        for number in COMMANDS[name].own:
            assert await fault.fail(number, 1)


@pytest.mark.matrix
@pytest.mark.parametrize("count", [1, 6])
@pytest.mark.parametrize("name", COMMANDS)
async def test_a_commit_that_fails_changes_nothing(tmp_path: Path, asker: str, name: str, count: int) -> None:
    """Each commit of each command until all is at rest, alone and with those that come after it for a while."""
    async with serving(tmp_path, COMMANDS[name], asker) as fault:
        number = 1
        while await fault.fail(number, count):
            number += 1
    print(f"{name}: {number - 1} commits")


@pytest.mark.matrix
@pytest.mark.parametrize("name", COMMANDS)
async def test_a_kill_after_a_commit_loses_nothing(tmp_path: Path, asker: str, name: str) -> None:
    """Each commit of each command until all is at rest, and before the first one."""
    command, first = COMMANDS[name], tmp_path / "first"
    first.mkdir()
    async with serving(first, command, asker) as fault:
        recorded = await fault.record(tmp_path)
    for number in range(recorded.commits + 1):
        async with serving(tmp_path / str(number), command, asker) as fault:
            await fault.go_on(recorded, number)
    print(f"{name}: {recorded.commits} commits, answered after {recorded.acknowledged}")
