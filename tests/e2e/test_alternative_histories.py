"""Random histories of answers, edits, choices, rewinds and moves: the server, the tree and the fold say the same."""

import itertools
from collections.abc import AsyncIterator

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opencode.message.content_pb2 import MESSAGE_TYPE_USER, SessionMessage
from opencode.message.message_pb2 import AbortSessionRequest, AppendMessageRequest, ListMessagesRequest
from opencode.session.session_pb2 import ClearSessionRequest, RestoreSessionRequest, RevertSessionRequest
from opencode.turn.turn_pb2 import BUSY_POLICY_INTERRUPT
from opencode.turn.turn_service_pb2 import (
    ListAlternativesRequest,
    RegenerateMessageRequest,
    SelectAlternativeRequest,
    StartTurnRequest,
)
from tests.support.clients.conversation import (
    FOREVER,
    ask,
    messages_of,
    new_session,
    refusal_of,
    talk,
    text,
    turn_ended,
    watching,
)
from tests.support.clients.rereading import Reader
from tests.support.oracles.conversation_tree import ConversationTree
from tests.support.oracles.fold import comparable
from tests.support.servers.running import Client, connect, running_server

pytestmark = pytest.mark.slow

STEPS = ("append", "talk", "again", "again", "edit", "edit", "select", "select", "select", "start")
REWINDS = ("clear", "restore", "restore", "revert", "revert")

histories = st.lists(st.tuples(st.sampled_from((*STEPS, *REWINDS)), st.integers(0, 7)), min_size=3, max_size=12)


class Author:
    """Does one thing after the other in a session, and in the tree."""

    def __init__(self, client: Client, session_id: str) -> None:
        """Takes an empty session."""
        self.client = client
        self.session_id = session_id
        self.tree = ConversationTree()
        self.users: set[str] = set()

    async def carry_out(self, step: str, place: int) -> None:
        """Does one thing; nothing when it does not fit."""
        on_path = self._among(self.tree.path, place)
        anywhere = self._among(list(self.tree.parents), place)
        match step:
            case "append":
                await self._append()
            case "talk":
                await talk(self.client, f"said {place}", self.session_id)
                self.tree.begin_turn()
            case "clear":
                await self.client.sessions.ClearSession(ClearSessionRequest(session_id=self.session_id))
                self.tree.clear()
            case "restore":
                await self._restore()
            case "revert" if on_path:
                request = RevertSessionRequest(session_id=self.session_id, before_message_id=on_path)
                await self.client.sessions.RevertSession(request)
                self.tree.revert(on_path)
            case "start" if on_path in self.users:
                await self._start(on_path)
            case "again" | "edit" if anywhere:
                await self._regenerate(anywhere, "edited" if step == "edit" else "")
            case "select" if anywhere:
                await self._select(anywhere)
        await self.check()

    async def check(self) -> None:
        """Compares the list and the alternatives with the tree, and takes in what is new."""
        listed = await messages_of(self.client, self.session_id)
        ids = [message.message_id for message in listed]
        known = len(self.tree.path)
        assert ids[:known] == self.tree.path
        for message in listed[known:]:
            self.tree.add(message.message_id)
            self.users |= {message.message_id} if message.type == MESSAGE_TYPE_USER else set()
        for message in listed:
            assert message.previous_message_id == self.tree.parents[message.message_id]
            numbers = message.alternative_count, message.alternative_index
            assert numbers == self.tree.numbers(message.message_id)
        await self._check_answers(listed)
        for previous in ("", *ids[:3]):
            asked = ListAlternativesRequest(session_id=self.session_id, previous_message_id=previous)
            found = await self.client.turns.ListAlternatives(asked)
            wanted = self.tree.alternatives(previous)
            assert [message.message_id for message in found.messages] == wanted
            assert found.selected_message_id == next((one for one in wanted if one in ids), "")

    async def _check_answers(self, listed: list[SessionMessage]) -> None:
        """Compares the turns of questions with those of the answers behind them."""
        for question, answer in itertools.pairwise(listed):
            if answer.answers_message_id == question.message_id:
                assert answer.turn_id == question.turn_id

    async def _append(self) -> None:
        request = AppendMessageRequest(session_id=self.session_id, type=MESSAGE_TYPE_USER, parts=[text("note")])
        await self.client.messages.AppendMessage(request)

    async def _restore(self) -> None:
        try:
            await self.client.sessions.RestoreSession(RestoreSessionRequest(session_id=self.session_id))
        except grpc.aio.AioRpcError as error:
            assert refusal_of(error).reason == "NOTHING_TO_RESTORE"
            assert not self.tree.restore()
        else:
            assert self.tree.restore()

    async def _start(self, message_id: str) -> None:
        request = StartTurnRequest(session_id=self.session_id, user_message_id=message_id)
        try:
            started = await self.client.turns.StartTurn(request)
        except grpc.aio.AioRpcError as error:
            assert refusal_of(error).reason == "TURN_EXISTS"
            return
        await self._ended(started.turn.turn_id, started.resume_token)
        self.tree.begin_turn()
        self.tree.move_to_end(message_id)

    async def _regenerate(self, message_id: str, words: str) -> None:
        request = RegenerateMessageRequest(session_id=self.session_id, message_id=message_id)
        request.new_parts.extend([text(words)] if words else [])
        question = message_id if message_id in self.users else self.tree.parents[message_id]
        try:
            made = await self.client.turns.RegenerateMessage(request)
        except grpc.aio.AioRpcError as error:
            assert refusal_of(error).reason == "MESSAGE_NOT_FOUND"
            assert not self.tree.can_be_on_the_path(question)
            return
        assert self.tree.can_be_on_the_path(question)
        await self._ended(made.turn.turn_id, made.resume_token)
        self.tree.lead_to(self.tree.parents[question] if words else question)
        self.tree.begin_turn()

    async def _select(self, message_id: str) -> None:
        request = SelectAlternativeRequest(session_id=self.session_id, message_id=message_id)
        try:
            await self.client.turns.SelectAlternative(request)
        except grpc.aio.AioRpcError as error:
            assert refusal_of(error).reason == "MESSAGE_NOT_FOUND"
            assert not self.tree.can_be_on_the_path(message_id)
        else:
            assert self.tree.can_be_on_the_path(message_id)
            self.tree.select(message_id)

    async def _ended(self, turn_id: str, token: str) -> None:
        async with watching(self.client, self.session_id, resume_token=token) as watch:
            await watch.until_turn_ended(turn_id)

    def _among(self, ids: list[str], place: int) -> str:
        return ids[place % len(ids)] if ids else ""


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    """A client of a server for all random histories."""
    async with running_server(tmp_path_factory.mktemp("h")) as running, connect(running.address) as connected:
        yield connected


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(history=histories)
async def test_the_path_is_one_line_of_the_tree(server: Client, history: list[tuple[str, int]]) -> None:
    """After each step list, numbers and alternatives are those of the tree; a fold of all events is the list."""
    author = Author(server, await new_session(server))
    await author.carry_out("talk", 0)
    for step, place in history:
        await author.carry_out(step, place)
    request = ListMessagesRequest(session_id=author.session_id)
    listed = await server.messages.ListMessages(request)
    reader = Reader(server, author.session_id)
    async with watching(server, author.session_id, after_sequence=0) as watch:
        await reader.follow(watch, listed.sequence)
    assert comparable(reader.fold.listed()) == comparable(listed.messages)


async def test_a_slow_client_is_not_led_back_by_older_snapshots(server: Client) -> None:
    """What it reads late, behind a list that is newer, neither revives an answer nor lets a message wait again."""
    session_id = await new_session(server)
    first = await talk(server, "one", session_id)
    answer = (await messages_of(server, session_id))[1].message_id
    again = RegenerateMessageRequest(session_id=session_id, message_id=first.message_id)
    made = await server.turns.RegenerateMessage(again)
    async with watching(server, session_id, resume_token=made.resume_token) as watch:
        await watch.until_turn_ended(made.turn.turn_id)
    request = SelectAlternativeRequest(session_id=session_id, message_id=answer)
    await server.turns.SelectAlternative(request)
    running = await server.messages.SendMessage(ask(FOREVER, session_id, busy_policy=BUSY_POLICY_INTERRUPT))
    waiting = await server.messages.SendMessage(ask("two", session_id))
    reader = Reader(server, session_id)
    async with watching(server, session_id, after_sequence=0) as watch:
        await watch.until_kind("message_snapshot")
        await watch.until_kind("caught_up")
        await server.messages.AbortSession(AbortSessionRequest(session_id=session_id, keep_queue=True))
        await turn_ended(server, running)
        await turn_ended(server, waiting)
        selected = await server.turns.SelectAlternative(request)
        for event in list(watch.events):
            await reader.take(event)
        await reader.follow(watch, selected.sequence)
    assert comparable(reader.fold.listed()) == comparable(await messages_of(server, session_id))
