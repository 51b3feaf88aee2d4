"""A real server with three scripted models, its sessions, and a client that acts in them and never waits for time.

Every action returns when the session has come to rest: nothing will happen in it before somebody acts again. So what a
script of actions does depends on nothing but the script. What must always hold is checked by `check`.
"""

import asyncio
import contextlib
import itertools
import json
import re
import shutil
from collections.abc import Set
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

from google.protobuf.duration_pb2 import Duration

from opencode.message.content_pb2 import FINISH_REASON_STOP, SessionMessage
from opencode.message.message_pb2 import (
    DISPOSITION_DUPLICATE,
    AbortSessionRequest,
    AppendMessageRequest,
    ExplainContextRequest,
    SendMessageRequest,
)
from opencode.session.session_pb2 import CreateSessionRequest, DeleteSessionRequest, SessionSettings
from opencode.tool.tool_pb2 import (
    ListOpenToolCallsRequest,
    ListPermissionsRequest,
    PermissionResponse,
    SubmitToolResultRequest,
    ToolCallLease,
)
from opencode.turn.turn_pb2 import BUSY_POLICY_INTERRUPT, TurnSettings
from opencode.turn.turn_service_pb2 import (
    EditQueuedMessageRequest,
    MoveQueuedMessageRequest,
    RegenerateMessageRequest,
    RemoveQueuedMessageRequest,
)
from tests.support.clients.conversation import (
    Watch,
    answer_to,
    ask,
    messages_of,
    model,
    model_name,
    refused,
    session_of,
    text,
    watching,
    words_of,
)
from tests.support.clients.followed_session import SETTLED, Followed, told
from tests.support.clients.tool_calls import claim, release, renew
from tests.support.models.odd_answers import Hold, Reply, open_hosted_call, with_own_ids
from tests.support.models.scripts import API_OF_PATH, CHECKS, Say
from tests.support.oracles.event_facts import facts
from tests.support.oracles.fold import SessionFold
from tests.support.oracles.histories import HOST_SECRET
from tests.support.rules import check_anthropic
from tests.support.servers.provider import ProviderServer, RecordedRequest, ScriptedReply
from tests.support.servers.running import Client, connect, running_server
from tests.support.servers.world_models import MODELS, PROVIDERS, configuration

FINE = Say("Fine.")
"""What a model says when nothing else was scripted."""

PATIENCE_SECONDS = 100.0
"""What takes so long hangs."""


class World:
    """Server, models and sessions. Use `start` and `close`; everything on one event loop."""

    def __init__(self, folder: Path) -> None:
        """Takes an empty folder for the databases."""
        self._folder = folder
        self._numbers = itertools.count(1)
        self._explained = itertools.count()
        self._running = AsyncExitStack()
        self._provider = ProviderServer(self._reply)
        self._moved = asyncio.Event()
        self._asked = asyncio.Event()
        self._violations: list[str] = []
        self._lives = 0
        self.client: Client
        self.sessions: list[Followed] = []

    async def start(self) -> None:
        """Starts the models and the server."""
        await self._provider.__aenter__()
        await self._serve(None)

    async def close(self) -> None:
        """Stops everything."""
        await self._stop()
        await self._provider.__aexit__()

    async def restart(self) -> None:
        """Stops the server in order and starts it again."""
        await self._stop()
        await self._serve(None)

    async def crash(self) -> None:
        """Goes on with the files as kill -9 would leave them at this moment.

        SQLite only appends to its log between two checkpoints, so database and log copied in this order are what both
        were at the moment of the second copy, or a prefix of it, which SQLite takes for a torn write.
        """
        folder, database = self._life(), self._life() / "turnwire.db"
        before = database.stat().st_mtime_ns
        copied = self._folder / f"life-{self._lives + 1}"
        copied.mkdir()
        shutil.copy(database, copied)
        log = folder / "turnwire.db-wal"
        if log.exists():
            shutil.copy(log, copied)
        assert database.stat().st_mtime_ns == before, "there was a checkpoint, so the copy is worth nothing"
        await self._stop()
        shutil.rmtree(folder)
        self._lives += 1
        await self._serve(copied)

    def _life(self) -> Path:
        return self._folder / f"life-{self._lives}"

    async def _serve(self, folder: Path | None) -> None:
        folder = folder or self._life()
        folder.mkdir(exist_ok=True)
        server = await self._running.enter_async_context(running_server(folder, configuration(self._provider.base_url)))
        self.client = await self._running.enter_async_context(connect(server.address))
        for one in self.sessions:
            self._follow(one)
        for one in self.sessions:
            await self.rest(one)

    async def _stop(self) -> None:
        for one in self.sessions:
            if one.watching is not None:
                one.watching.cancel()
                await asyncio.wait((one.watching,))
                one.watching = None
        await self._running.aclose()
        for one in self.sessions:
            one.cut_off()

    # What the models do.

    def _reply(self, request: RecordedRequest) -> ScriptedReply:
        api = API_OF_PATH[request.path]
        one = self._session_of(request)
        self._check_request(api, request, one)
        if one is None:
            return Reply((FINE,)).on_the_wire(api, Hold(self._move))
        reply = one.script.popleft() if one.script else Reply((FINE,))
        pieces = with_own_ids(reply.pieces, self._numbers, one.open_call)
        reply = Reply(pieces, reply.ending, reply.after, reply.status)
        one.given.append(reply)
        if not reply.fails:
            one.paused = reply.ending == "paused" and api == "anthropic"
            one.open_call = open_hosted_call(pieces)
        self._asked.set()
        cuts = one.cuts
        hold = Hold(lambda: self._held(one, hold, cuts))
        return reply.on_the_wire(api, hold)

    def _held(self, one: Followed, hold: Hold, cuts: int) -> None:
        if cuts == one.cuts:  # else nobody reads the answer any more
            one.hold = hold
        self._move()

    def _session_of(self, request: RecordedRequest) -> Followed | None:
        tags = set(re.findall(r"\(in (s\d+)\)", json.dumps(request.body)))
        if len(tags) > 1:
            self._violations.append(f"one request speaks of the sessions {sorted(tags)}")
        return next((one for one in self.sessions if one.tag in tags), None)

    def _check_request(self, api: str, request: RecordedRequest, one: Followed | None) -> None:
        continues_pause = one is not None and one.paused
        self._violations += [f"{api}: {violation}" for violation in violations(api, request.body, continues_pause)]
        if one is None:
            self._violations.append(f"{api}: a request of no session that is there")

    # What the client does.

    async def new_session(self, **fields: Any) -> Followed:
        """Creates a session and follows it."""
        created = await self.client.sessions.CreateSession(CreateSessionRequest(settings=SessionSettings(**fields)))
        one = Followed(f"s{next(self._numbers)}", created.id)
        self.sessions.append(one)
        self._follow(one)
        await self.rest(one)
        return one

    async def delete(self, one: Followed) -> None:
        """Deletes a session."""
        await self.client.sessions.DeleteSession(DeleteSessionRequest(session_id=one.session_id))
        self.sessions.remove(one)
        assert one.watching is not None
        await asyncio.wait_for(one.watching, PATIENCE_SECONDS)
        assert one.fold.deleted

    async def send(self, one: Followed, request: SendMessageRequest, *, twice: bool = False, crash: str = "") -> None:
        """Sends a message.

        Args:
            one: The session.
            request: The message.
            twice: Send it again at once, as after a lost answer; it must have a name.
            crash: "accepted" or "asked": the server dies as soon as the message is accepted, or the model is asked.
        """
        self._asked.clear()
        ended = self._interrupted(one, request.busy_policy)
        accepted = await self.client.messages.SendMessage(request)
        if request.request_id:
            one.named.append((request, accepted))
        if crash == "asked" and not accepted.queue_position:
            await self._asked.wait()
        if crash:
            await self.crash()
        if twice:
            await self.repeat(one)
        await self.rest(one, ended)

    def _interrupted(self, one: Followed, policy: int) -> set[str]:
        """Returns the turn that a message with a policy ends, if there is one. Nobody waits for its answer any more."""
        if policy != BUSY_POLICY_INTERRUPT:
            return set()
        one.cut_off()
        return set(one.fold.open_turns)

    async def regenerate(self, one: Followed, request: RegenerateMessageRequest) -> None:
        """Answers a message again, at once or when the running turn is interrupted."""
        ended = self._interrupted(one, request.busy_policy)
        one.paused, one.open_call = False, ""  # the answer that left it so is not in the next request
        made = await self.client.turns.RegenerateMessage(request)
        again = await self.client.turns.RegenerateMessage(request)
        assert (again.disposition, again.turn.turn_id) == (DISPOSITION_DUPLICATE, made.turn.turn_id)
        await self.rest(one, ended)

    async def edit(self, one: Followed, message_id: str, words: str, policy: int) -> None:
        """Changes a waiting message."""
        ended = self._interrupted(one, policy)
        request = EditQueuedMessageRequest(
            session_id=one.session_id, message_id=message_id, parts=[text(one.mark(words))]
        )
        request.busy_policy = policy
        edited = await self.client.turns.EditQueuedMessage(request)
        assert words_of(edited.message) == one.mark(words)
        await self.rest(one, ended)

    async def move(self, one: Followed, message_id: str, before_message_id: str) -> None:
        """Moves a waiting message before another one, or to the end."""
        request = MoveQueuedMessageRequest(session_id=one.session_id, message_id=message_id)
        request.before_message_id = before_message_id
        moved = [entry.message_id for entry in (await self.client.turns.MoveQueuedMessage(request)).entries]
        at = moved.index(before_message_id) if before_message_id else len(moved)
        assert moved[at - 1] == message_id
        await self.rest(one)
        assert one.fold.queue == moved

    async def remove(self, one: Followed, message_id: str) -> None:
        """Removes a waiting message."""
        request = RemoveQueuedMessageRequest(session_id=one.session_id, message_id=message_id)
        await self.client.turns.RemoveQueuedMessage(request)
        await self.rest(one)
        assert message_id not in one.fold.messages

    async def repeat(self, one: Followed) -> None:
        """Sends the newest message with a name again: it is the same one."""
        if one.named:
            request, first = one.named[-1]
            again = await self.client.messages.SendMessage(request)
            assert again.disposition == DISPOSITION_DUPLICATE
            assert (again.message_id, again.turn_id) == (first.message_id, first.turn_id)

    async def append(self, one: Followed, request: AppendMessageRequest, *, is_awaited: bool = False) -> None:
        """Appends a message, or is told that it is the result that the running turn waits for."""
        appending = self.client.messages.AppendMessage(request)
        if is_awaited:
            assert (await refused(appending)).reason == "INVALID_REQUEST"
        else:
            await appending
        await self.rest(one)

    async def abort(self, one: Followed, *, keep_queue: bool) -> None:
        """Ends the running turn."""
        one.cut_off()
        await self.client.messages.AbortSession(AbortSessionRequest(session_id=one.session_id, keep_queue=keep_queue))
        await self.rest(one)

    async def let_go(self, one: Followed) -> None:
        """Lets a held answer come."""
        if one.hold is not None:
            hold, one.hold = one.hold, None
            hold.set()
            await self.rest(one)

    async def answer_permission(self, one: Followed, response: str, number: int = 0) -> bool:
        """Answers an open permission request. Returns False when there is none."""
        listed = await self.client.permissions.ListPermissions(ListPermissionsRequest(session_id=one.session_id))
        asked = listed.permissions
        assert {request.id for request in asked} == set(one.fold.permissions)
        if not asked:
            return False
        permission_id = asked[number % len(asked)].id
        await self.client.permissions.RespondToPermission(
            PermissionResponse(session_id=one.session_id, permission_id=permission_id, response=response)
        )
        await self.rest(one)
        return True

    async def submit(self, one: Followed, number: int = 0, **result: Any) -> bool:
        """Gives the result of an open call, twice as after a lost answer. Returns False when none is open."""
        calls = one.open_calls()
        if not calls:
            return False
        call = calls[number % len(calls)]
        request = SubmitToolResultRequest(session_id=one.session_id, tool_call_id=call.id, **result)
        if call.HasField("lease"):
            assert (await refused(self.client.tools.SubmitToolResult(request))).reason == "LEASE_HELD"
            request.lease_id = call.lease.lease_id
        first = await self.client.tools.SubmitToolResult(request)
        again = await self.client.tools.SubmitToolResult(request)
        assert first.tool_call.output == again.tool_call.output
        assert first.tool_call.status in SETTLED
        await self.rest(one)
        return True

    async def lease(self, one: Followed, how: str, number: int) -> None:
        """Claims an open call, or changes its lease; who has none is refused. Leases last longer than a history."""
        calls = one.open_calls()
        if not calls:
            return
        call = calls[number % len(calls)]
        ids, tools = (one.session_id, call.id), self.client.tools
        if how == "claim":
            claiming = tools.ClaimToolCall(claim(*ids, duration=Duration(seconds=3600), request_id=uuid4().hex))
            if call.HasField("lease"):
                assert (await refused(claiming)).reason == "LEASE_HELD"
            else:
                assert (await claiming).lease.holder == "one"
        else:
            lease = call.lease if call.HasField("lease") else ToolCallLease(lease_id="lse_never")
            if how == "renew":
                changing = tools.RenewToolCall(renew(*ids, lease, "a line", duration=Duration(seconds=3600)))
            else:
                changing = tools.ReleaseToolCall(release(*ids, lease))
            if call.HasField("lease"):
                await changing
            else:
                assert (await refused(changing)).reason == "LEASE_LOST"
        await self.rest(one)
        listed = await tools.ListOpenToolCalls(ListOpenToolCallsRequest(session_id=one.session_id))
        found = {call.tool_call.id: call.tool_call for call in listed.calls}
        assert found == {call.id: call for call in one.open_calls()}

    # What must hold.

    async def rest(self, one: Followed, ended: Set[str] = frozenset()) -> None:
        """Returns when nothing happens in a session before somebody acts.

        Args:
            one: The session.
            ended: Turns that will end without anybody acting.

        Raises:
            TimeoutError: it hangs.
        """
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                running = None
                while running != next(iter(one.fold.open_turns), ""):  # a snapshot may be ahead of the events
                    session = await session_of(self.client, one.session_id)
                    running = session.active_turn_id
                    while (one.fold.head or 0) < session.head_sequence or not self._rests(one, ended):
                        self._look_at(one)
                        await self._moved.wait()
                        self._moved.clear()
        except TimeoutError:
            raise AssertionError(f"the session hangs: {one.given=}\n{one.fold.listed()=}") from None

    async def check(self) -> None:
        """Checks all that must hold whatever was done."""
        assert not self._violations, "\n".join(self._violations)
        for one in self.sessions:
            await self._check_fold(one)
            session = await session_of(self.client, one.session_id)
            assert session.active_turn_id == next(iter(one.fold.open_turns), "")
            assert session.queued_messages == len(one.fold.queue)
        await self._check_next_requests(self.sessions[-1])

    async def _check_fold(self, one: Followed) -> None:
        """Checks that the watch says what is stored. While an answer is held, its text may still be on its way."""
        stored: list[SessionMessage] = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                while True:
                    stored = await messages_of(self.client, one.session_id)
                    if one.hold is None or told(one.fold.listed()) == told(stored):
                        break
                    self._look_at(one)
                    await asyncio.sleep(0)
        self._look_at(one)
        pairs = itertools.zip_longest(told(one.fold.listed()), told(stored))
        differing = [f"the client holds\n{held}\nand stored is\n{kept}" for held, kept in pairs if held != kept]
        assert not differing, f"{one.given=}\n{differing[0]}"

    async def _check_next_requests(self, one: Followed) -> None:
        """Checks what one of the models would be sent now, the next one at each call."""
        provider_id, model_id = MODELS[next(self._explained) % len(MODELS)]
        told = await self.client.messages.ExplainContext(
            ExplainContextRequest(
                session_id=one.session_id, settings=TurnSettings(model=model_name(model_id, provider_id))
            )
        )
        found = violations(told.api, json.loads(told.request_json), one.paused)
        assert not found, f"what {model_id} would be sent: {found}"

    async def go_on(self) -> None:
        """Checks that no session is stuck: all that is open can be settled, and then every model answers."""
        for one in self.sessions:
            one.script.clear()
            for _ in range(100):
                if not one.fold.open_turns:
                    break
                await self.let_go(one)
                if await self.answer_permission(one, "once"):
                    continue
                await self.submit(one, output="done")
            assert not one.fold.open_turns
            for provider_id, provider in PROVIDERS.items():
                await self._is_answered(one, model(provider.models[0], provider_id))
        await self.check()

    async def _is_answered(self, one: Followed, chosen: Any) -> None:
        accepted = await self.client.messages.SendMessage(ask(one.mark("still there?"), one.session_id, model=chosen))
        await self.rest(one)
        said = await answer_to(self.client, accepted)
        assert one.fold.ended_turns[accepted.turn_id] == FINISH_REASON_STOP, said
        assert words_of(said) == FINE.text

    def _rests(self, one: Followed, ended: Set[str]) -> bool:
        if not ended <= one.fold.ended_turns.keys():
            return False
        if not one.fold.open_turns:  # when an answer is held already, the start of its turn is on its way
            return not one.fold.queue and one.hold is None
        if one.hold is not None:
            return True
        return bool(one.waiting_calls())

    def _follow(self, one: Followed) -> None:
        """Watches the session: in turns from the first event on, and from where its last watch was."""
        one.resumes = bool(one.token) and not one.resumes
        if not one.resumes:
            one.fold, one.token = SessionFold(one.session_id), ""
        one.watching = asyncio.create_task(self._watch(one))

    async def _watch(self, one: Followed) -> None:
        start = {"resume_token": one.token} if one.resumes else {"from_beginning": True}
        try:
            async with watching(self.client, one.session_id, one.fold, **start) as watch:
                while await self._batch(one, watch):
                    one.token = watch.token or one.token
                    self._move()
        except asyncio.CancelledError:
            pass
        finally:
            self._move()

    async def _batch(self, one: Followed, watch: Watch) -> bool:
        batch = await watch.batch()
        for event in batch:
            if event.sequence:
                told_always = facts(event)
                assert one.events.setdefault(event.sequence, told_always) == told_always, "an event is another one now"
        return bool(batch)

    def _look_at(self, one: Followed) -> None:
        """Raises what the watch of a session raised."""
        if one.watching is not None and one.watching.done():
            one.watching.result()

    def _move(self) -> None:
        self._moved.set()


def violations(api: str, body: dict[str, Any], continues_pause: bool) -> list[str]:
    """Returns what is wrong with a request: the rules of its API that it breaks, and whether it tells secrets."""
    found = check_anthropic(body, continues_pause=continues_pause) if api == "anthropic" else CHECKS[api](body)
    return [*found, *(["tells what is for people only"] if HOST_SECRET in json.dumps(body) else [])]
