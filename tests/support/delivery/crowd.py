"""The clients that act: they send with names and again, answer, change, and are promised things.

Every action is one call, or several at the same moment; it does not wait for what comes of it.
"""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any

import grpc

from opencode.message.content_pb2 import FINISH_REASON_ABORTED, SessionMessage
from opencode.message.message_pb2 import DISPOSITION_DUPLICATE, AbortSessionRequest, GetMessageRequest
from opencode.question.question_pb2 import QUESTION_ACTION_ACCEPT, AnswerQuestionRequest, ListQuestionsRequest
from opencode.session.session_pb2 import DeleteSessionRequest
from opencode.tool.tool_pb2 import (
    ClaimToolCallRequest,
    ListOpenToolCallsRequest,
    ListPermissionsRequest,
    PermissionResponse,
    ReleaseToolCallRequest,
    SubmitToolResultRequest,
)
from opencode.turn.turn_pb2 import BUSY_POLICY_STEER, TURN_STATUS_ENDED
from opencode.turn.turn_service_pb2 import EditQueuedMessageRequest, GetTurnRequest
from tests.support.clients.conversation import Refusal, refusal_of, words_of
from tests.support.delivery.promises import Ledger, Named, Result, Session
from tests.support.delivery.readers import PATIENCE_SECONDS
from tests.support.delivery.world import World

GONE = frozenset({"SESSION_NOT_FOUND"})
DEAD = grpc.StatusCode.UNAVAILABLE
LATE = frozenset({"TOOL_CALL_ALREADY_SETTLED", "TOOL_CALL_NOT_READY", "TOOL_CALL_NOT_FOUND"})
LEASED = frozenset({"LEASE_HELD", "LEASE_LOST"})
ANSWERED = frozenset({"PERMISSION_ALREADY_ANSWERED", "PERMISSION_REQUEST_NOT_FOUND"})
OVER = frozenset({"QUESTION_ALREADY_ANSWERED", "QUESTION_NOT_FOUND"})
MOVED_ON = frozenset({"MESSAGE_NOT_WAITING", "MESSAGE_NOT_FOUND", "STALE_VERSION"})


class Crowd:
    """Acts at the server that runs now."""

    def __init__(self, world: World, ledger: Ledger) -> None:
        """Takes the world, and where promises are noted."""
        self._world = world
        self._ledger = ledger
        self._streams: list[tuple[Named, asyncio.Task[None]]] = []

    # Requests with names.

    async def ask(self, named: Named, times: int = 1, *, dies: bool = False) -> bool:
        """Sends a request, several times at the same moment, as clients do that lost the answer.

        Args:
            named: The request.
            times: How often.
            dies: The server may die meanwhile.

        Returns:
            Whether it was acknowledged.
        """
        known = bool(named.made)
        outcomes = await asyncio.gather(*(self._once(named, dies) for _ in range(times)))
        answers = [outcome for outcome in outcomes if outcome is not None]
        for answer in answers:
            self._ledger.note(named, answer)
        fresh = [answer for answer in answers if getattr(answer, "disposition", None) != DISPOSITION_DUPLICATE]
        if hasattr(named.request, "busy_policy") and len(fresh) > (0 if known else 1):
            raise AssertionError(f"{named.request.request_id} counted {len(fresh)} times: {answers}, {known=}")
        return bool(answers)

    async def _once(self, named: Named, dies: bool) -> Any:
        service, method = named.method.split(".")
        call = getattr(getattr(self._world.client, service), method)(named.request)
        return await self._unless(call, self._allowed(named.session_id) | named.refusals, dies=dies)

    def _allowed(self, session_id: str) -> frozenset[str]:
        if not session_id:
            return frozenset()
        session = self._ledger.sessions.get(session_id)
        return frozenset() if session is not None and session.is_there else GONE

    async def _unless(self, call: Awaitable[Any], reasons: Iterable[str], *, dies: bool = False) -> Any:
        """Returns the answer of a call; None when it is refused for one of the reasons."""
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            if dies and error.code() in (DEAD, grpc.StatusCode.CANCELLED):
                return None
            refusal = refusal_of(error)
            if refusal.reason not in reasons:
                raise AssertionError(f"refused: {refusal}, and not for one of {sorted(reasons)}") from error
            return None

    async def stream(self, named: Named) -> None:
        """Sends a message and follows its turn in the same call, in a task of its own."""
        call = self._world.client.messages.StreamMessage(message=named.request)
        allowed = self._allowed(named.session_id) | named.refusals
        first = await self._unless(call.read(), allowed)
        if first is not None:
            assert first.HasField("accepted"), first
            self._ledger.note(named, first.accepted)
            self._streams.append((named, asyncio.create_task(self._follow(call, first.accepted.turn_id))))

    async def _follow(self, call: Any, turn_id: str) -> None:
        """Reads a stream to its end, which follows the end of its turn, or of the one that its message joined."""
        ended: list[int] = []
        head = 0
        try:
            while (batch := await call.read()) is not grpc.aio.EOF:
                for event in batch.events:
                    assert not ended, f"{event} after the end of the turn"
                    if event.sequence:
                        assert event.sequence > head, f"{event} after {head}"
                        head = event.sequence
                    if event.HasField("turn_ended") and event.turn_id == turn_id:
                        turn_id = event.turn_ended.turn.merged_into_turn_id
                        if not turn_id:
                            ended.append(event.sequence)
            assert ended, "the stream ended before its turn"
        except grpc.aio.AioRpcError as error:
            if error.code() not in (DEAD, grpc.StatusCode.CANCELLED):
                raise

    async def streams_end(self) -> None:
        """Waits for the ends of all streams; the sessions must be idle."""
        for named, task in self._streams:
            done, _ = await asyncio.wait((task,), timeout=PATIENCE_SECONDS)
            assert done, f"the stream of {named.request.request_id} does not end"
            task.result()
        self._streams.clear()

    async def leave_streams(self) -> None:
        """Ends all streams; raises what one of them found wrong."""
        streams = [task for _, task in self._streams]
        self._streams.clear()
        for task in streams:
            task.cancel()
        for outcome in await asyncio.gather(*streams, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome

    # What turns wait for.

    async def answer_tool(self, session_id: str, number: int, how: str) -> bool:
        """Gives the result of an open call, and another one after it: one result counts.

        Args:
            session_id: The session.
            number: Which of the open calls.
            how: "alone"; "at once": two clients do at the same moment; "leased": so they do, each under a lease of its
                own, of which the first has ended.
        """
        request = ListOpenToolCallsRequest(session_id=session_id)
        listed = await self._unless(self._world.client.tools.ListOpenToolCalls(request), self._allowed(session_id))
        if listed is None or not listed.calls:
            return False
        call = listed.calls[number % len(listed.calls)]
        ids = {"session_id": session_id, "tool_call_id": call.tool_call.id}
        leases = await self._two_leases(ids) if how == "leased" else ("", "")
        requests = [
            SubmitToolResultRequest(output=output, lease_id=lease, **ids)
            for output, lease in zip(("one", "another"), leases, strict=True)
        ]
        at_once, later = (requests[:1], requests[1:]) if how == "alone" else (requests, [])
        submit = self._world.client.tools.SubmitToolResult
        done = await asyncio.gather(*(self._unless(submit(one), LATE | LEASED) for one in at_once))
        taken = [one for one, answer in zip(at_once, done, strict=True) if answer is not None]
        assert len(taken) < 2, f"two results of {call.tool_call.id} were taken"
        for one in taken:
            ended = leases[1] and one.lease_id != leases[1]
            assert not ended, f"a result of {call.tool_call.id} was taken under a lease that has ended"
            self._ledger.sessions[session_id].results[call.tool_call.id] = Result(call.message_id, one.output)
            again = await self._unless(submit(one), ())
            assert again.tool_call.output == one.output
            for other in (*(other for other in at_once if other is not one), *later):
                late = await self._unless(submit(other), LATE | LEASED)
                assert late is None, f"another result of {call.tool_call.id} was taken after the first"
        return True

    async def _two_leases(self, ids: dict[str, str]) -> tuple[str, str]:
        """Returns the ids of a lease that was given up and of the one after it; "" for one that is refused."""
        tools = self._world.client.tools
        found = []
        for holder in ("first", "second"):
            claimed = await self._unless(tools.ClaimToolCall(ClaimToolCallRequest(holder=holder, **ids)), LATE | LEASED)
            found.append("" if claimed is None else claimed.lease.lease_id)
            if holder == "first" and claimed is not None:
                released = ReleaseToolCallRequest(lease_id=claimed.lease.lease_id, **ids)
                await self._unless(tools.ReleaseToolCall(released), LATE | LEASED)
        return found[0], found[1]

    async def answer_permission(self, session_id: str, number: int, response: str) -> bool:
        """Answers an open permission request, twice."""
        request = ListPermissionsRequest(session_id=session_id)
        listed = await self._unless(self._world.client.permissions.ListPermissions(request), self._allowed(session_id))
        if listed is None or not listed.permissions:
            return False
        asked = listed.permissions[number % len(listed.permissions)]
        answer = PermissionResponse(session_id=session_id, permission_id=asked.id, response=response)
        respond = self._world.client.permissions.RespondToPermission
        if await self._unless(respond(answer), ANSWERED) is not None:
            await self._unless(respond(answer), ())
        return True

    async def answer_question(self, session_id: str, number: int) -> bool:
        """Answers an open question of a tool, twice under one name."""
        request = ListQuestionsRequest(session_id=session_id)
        listed = await self._unless(self._world.client.questions.ListQuestions(request), self._allowed(session_id))
        if listed is None or not listed.questions:
            return False
        asked = listed.questions[number % len(listed.questions)]
        answer = AnswerQuestionRequest(
            session_id=session_id,
            question_id=asked.question_id,
            action=QUESTION_ACTION_ACCEPT,
            content_json='{"colour":"red"}',
            request_id=f"answer-{asked.question_id}",
        )
        first = await self._unless(self._world.client.questions.AnswerQuestion(answer), OVER)
        if first is not None:
            again = await self._unless(self._world.client.questions.AnswerQuestion(answer), ())
            assert not again.sequence, f"{asked.question_id} was answered twice: {first}, {again}"
        return True

    def let_go(self, number: int = 0) -> bool:
        """Lets an answer come that is held back."""
        held = self._world.answers.held()
        if held:
            held[number % len(held)].hold.set()
        return bool(held)

    # What changes a session.

    async def abort(self, session_id: str, *, keep_queue: bool) -> None:
        """Ends the running turn."""
        self._may_drop(session_id)
        request = AbortSessionRequest(session_id=session_id, keep_queue=keep_queue)
        await self._unless(self._world.client.messages.AbortSession(request), self._allowed(session_id))

    async def delete(self, session_id: str) -> None:
        """Deletes a session; the second time there is none."""
        request = DeleteSessionRequest(session_id=session_id)
        if session_id in self._ledger.there():
            await self._world.client.sessions.DeleteSession(request)
            self._ledger.note_deleted(session_id)
        assert await self._unless(self._world.client.sessions.DeleteSession(request), GONE) is None

    async def change(self, method: str, request: Any, reasons: Iterable[str]) -> Any:
        """Makes a call that changes a session, unless it is refused for one of the reasons; then returns None."""
        service, name = method.split(".")
        call = getattr(getattr(self._world.client, service), name)(request)
        return await self._unless(call, self._allowed(request.session_id) | frozenset(reasons))

    async def waiting(self, session_id: str) -> list[str]:
        """Returns the ids of the messages that wait."""
        call = self._world.client.turns.ListQueue(session_id=session_id)
        listed = await self._unless(call, self._allowed(session_id))
        return [] if listed is None else [entry.message_id for entry in listed.entries]

    def refusals_of(self, edit: EditQueuedMessageRequest) -> frozenset[str]:
        """Returns why an edit may be refused, of a message that waits: a new answer joins no turn."""
        made = {one.method for one in self._ledger.named if one.session_id == edit.session_id}
        steers = edit.busy_policy == BUSY_POLICY_STEER and "turns.RegenerateMessage" in made
        return frozenset({"INVALID_REQUEST"}) if steers else frozenset()

    def note_edited(self, session_id: str, message_id: str) -> None:
        """Notes that a message says other words now."""
        self._ledger.sessions[session_id].edited.add(message_id)

    def _may_drop(self, session_id: str) -> None:
        if (session := self._ledger.sessions.get(session_id)) is not None:
            session.dropped = True

    def note_dropped(self, session_id: str) -> None:
        """Notes that a message that waited was taken out."""
        self._may_drop(session_id)

    # What was promised.

    async def check_promises(self) -> None:
        """Checks that all that was acknowledged is there, and that every turn of it has ended; all must be idle."""
        for named in self._ledger.named:
            session = self._ledger.sessions.get(named.session_id)
            if named.made and session is not None and session.is_there:
                if named.turn_id:
                    await self._check_turn(named)
                if named.makes == "message_id":
                    await self._check_message(named, session)
        for session in self._ledger.sessions.values():
            if session.is_there:
                for call_id, result in session.results.items():
                    await self._check_result(session, call_id, result)

    async def _check_turn(self, named: Named) -> None:
        request = GetTurnRequest(session_id=named.session_id, turn_id=named.turn_id)
        turn = (await self._world.client.turns.GetTurn(request)).turn
        assert turn.status == TURN_STATUS_ENDED, f"the turn of {named.request.request_id} has not ended: {turn}"

    async def _check_message(self, named: Named, session: Session) -> None:
        message = await self._message(session, named.made)
        if isinstance(message, Refusal):
            turn_id = named.turn_id
            assert session.dropped and turn_id, f"{named.request.request_id} is gone: {message}"
            turn = await self._world.client.turns.GetTurn(session_id=session.session_id, turn_id=turn_id)
            assert turn.turn.finish_reason == FINISH_REASON_ABORTED, f"{named.request.request_id} is gone: {turn}"
        elif named.made not in session.edited:
            assert words_of(message) == named.words, f"{named.request.request_id} says {message}"

    async def _check_result(self, session: Session, call_id: str, result: Result) -> None:
        message = await self._message(session, result.message_id)
        assert not isinstance(message, Refusal), f"the message of {call_id} is gone: {message}"
        (call,) = (part.tool_use for part in message.parts if part.tool_use.id == call_id)
        assert (call.status, call.output) == ("success", result.output), f"the result of {call_id} is {call}"

    async def _message(self, session: Session, message_id: str) -> SessionMessage | Refusal:
        request = GetMessageRequest(session_id=session.session_id, message_id=message_id)
        try:
            return (await self._world.client.messages.GetMessage(request)).message
        except grpc.aio.AioRpcError as error:
            refusal = refusal_of(error)
            assert refusal.reason == "MESSAGE_NOT_FOUND", refusal
            return refusal
