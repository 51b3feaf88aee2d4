"""Begins responses: where a request goes on, what of it is stored, and which turn answers it."""

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from opencode.message.content_pb2 import (
    FINISH_REASON_STOP,
    FINISH_REASON_TOOL_USE,
    MESSAGE_TYPE_ASSISTANT,
    MESSAGE_TYPE_HOST,
    MESSAGE_TYPE_SYSTEM,
    MESSAGE_TYPE_USER,
    SessionMessage,
)
from opencode.message.message_pb2 import (
    AppendedToolCall,
    AppendedToolResult,
    AppendMessageRequest,
    GetMessageRequest,
    MessagePart,
    SendMessageRequest,
)
from opencode.message.message_pb2_grpc import MessageServiceStub
from opencode.model.selection_pb2 import ModelSelection
from opencode.provider.provider_pb2 import ProviderInfo
from opencode.session.session_pb2 import (
    COMPACTION_MODE_OFF,
    SESSION_STATUS_IDLE,
    CreateSessionRequest,
    DeleteSessionRequest,
    ForkSessionRequest,
    GetSessionRequest,
    RestoreSessionRequest,
    RevertSessionRequest,
    SessionSettings,
)
from opencode.session.session_pb2_grpc import SessionServiceStub
from opencode.tool.tool_pb2 import ListToolsRequest, PermissionResponse, SubmitToolResultRequest, ToolCallState
from opencode.tool.tool_pb2_grpc import PermissionServiceStub, ToolServiceStub
from opencode.turn.turn_pb2 import BUSY_POLICY_REJECT
from opencode.turn.turn_service_pb2 import StartTurnRequest
from opencode.turn.turn_service_pb2_grpc import TurnServiceStub
from turnwire_adapters.doors import DOOR_LABEL
from turnwire_adapters.responses import following
from turnwire_adapters.responses.errors import ApiError, not_found
from turnwire_adapters.responses.ids import (
    ItemId,
    ResponseId,
    UnknownIdError,
    item_id,
    read_conversation_id,
    read_item_id,
    read_response_id,
)
from turnwire_adapters.responses.items import items_of, label_and_name, waits_for_client
from turnwire_adapters.responses.objects import FACTS_KEY, facts_of
from turnwire_adapters.responses.requests import (
    Approval,
    Called,
    CreateRequest,
    Input,
    Reference,
    Result,
    Said,
    read_input,
    wrong,
)
from turnwire_client import Client, FailedPreconditionError, NotFoundError, TurnwireError, UnavailableError

DOOR = "responses"
STORE_LABEL = "turnwire.store"
"""Label, with the value `false`, of sessions that are deleted when their response has ended."""
FORK_LABEL = "turnwire.response_of"
"""Label of a copy that goes on behind an older response: the id of that."""

KEY_FACT = "request"
"""Under which the facts of results have the name of the request that brought them, when it has a key."""
SEGMENT_FACT = "segment"
"""Under which they have which response of the turn it began."""

MAX_SEGMENTS = 256
"""Responses of one turn: two digits in an id."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One message to store."""

    type: int
    parts: tuple[MessagePart, ...]


class Turns:
    """Has requests to one session begin one after another in this process: each sees what became of the one before."""

    def __init__(self) -> None:
        """Knows no session."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @contextlib.asynccontextmanager
    async def of(self, session_id: str) -> AsyncIterator[None]:
        """Waits until it is the caller's turn. A request that goes on in no session ("") waits for none."""
        if not session_id:
            yield
            return
        lock = self._locks.setdefault(session_id, asyncio.Lock())
        async with lock:
            yield


async def create(client: Client, request: CreateRequest, key: str, turns: Turns) -> ResponseId:
    """Begins a response and returns what its id names. Nothing is begun twice under the same key.

    Args:
        client: Of the caller.
        request: What to answer.
        key: A name of the request; "" for none.
        turns: The requests that begin now.

    Raises:
        ApiError: the request does not fit to what it goes on with.
        TurnwireError: the server refuses, or does not answer.
    """
    if not request.input:
        raise ApiError("Missing required parameter: 'input'.", param="input", code="missing_required_parameter")
    await _check_servers(client, request.server_labels)
    beginning = _Beginning(client, request, key)
    async with turns.of(beginning.session_id()):
        if key and (begun := await beginning.began_by_answers()) is not None:
            return begun
        if request.previous_response_id:
            return await beginning.behind_response(request.previous_response_id)
        if request.conversation_id:
            return await beginning.in_conversation(request.conversation_id)
        return await beginning.anew()


async def _check_servers(client: Client, labels: Collection[str]) -> None:
    """Raises ApiError unless the server has tools of all MCP servers of these labels."""
    if not labels:
        return
    stub, request, known = client.stub(ToolServiceStub), ListToolsRequest(page_size=1000), set[str]()
    while True:
        page = await client.call(stub.ListTools, request)
        known |= {label_and_name(tool.name)[0] for tool in page.tools}
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    for label in labels:
        if label not in known:
            raise wrong("tools", f"names the MCP server {label!r}, of which this server has no tools")


class _Beginning:
    """One request that begins a response."""

    def __init__(self, client: Client, request: CreateRequest, key: str) -> None:
        self._client = client
        self._request = request
        self._has_key = bool(key)
        self._key = key or str(uuid.uuid4())
        self._attempt = 0
        """Number of times that a request of this key stored messages that were taken back."""
        self._messages = client.stub(MessageServiceStub)
        self._sessions = client.stub(SessionServiceStub)

    def session_id(self) -> str:
        """Returns the session in which the request wants to go on; "" for a new one."""
        last = self._request.input[-1]
        with contextlib.suppress(UnknownIdError, ApiError):
            if self._request.previous_response_id:
                return read_response_id(self._request.previous_response_id).session_id
            if self._request.conversation_id:
                return read_conversation_id(self._request.conversation_id)
            if isinstance(last, Result | Approval):
                return _place_of(last).session_id
        return ""

    async def began_by_answers(self) -> ResponseId | None:
        """Returns the response that a request of this key began with the answers at its end, if any."""
        last = self._request.input[-1]
        if not isinstance(last, Result | Approval):
            return None
        try:
            place = _place_of(last)
            message = await following.message_of(self._client, place.session_id, place.message_id)
        except (ApiError, NotFoundError):
            return None
        if all(isinstance(one, Approval) for one in self._request.input):
            return await self._began_by_approvals(place, message)
        return self._began_by_results(place, message)

    async def _began_by_approvals(self, place: ItemId, message: SessionMessage) -> ResponseId | None:
        """Returns the response that these decisions began, once all are made.

        Nothing is kept with a decision that could name its request, so the same decisions count as the same request.
        """
        begun, decided = await self._decided(place, message)
        given = {one.request_id: one.approve for one in self._request.input if isinstance(one, Approval)}
        waits = any(waits_for_client(part.tool_use) for part in message.parts)
        return begun if given.items() <= decided.items() and not waits else None

    async def _decided(self, place: ItemId, message: SessionMessage) -> tuple[ResponseId | None, dict[str, bool]]:
        """Returns the response behind the questions of a message, and what was decided about each, by its id."""
        try:
            asked = await self._waiting(place.session_id, message, place.part)
            behind = ResponseId(place.session_id, message.turn_id, asked.segment + 1)
            _, stream = await following.current(self._client, behind)
        except ApiError:
            return None, {}  # it has no questions
        return behind, stream.decisions

    def _began_by_results(self, place: ItemId, message: SessionMessage) -> ResponseId | None:
        calls = {
            item_id("call_", place.session_id, place.message_id, part.index): part.tool_use
            for part in message.parts
            if part.WhichOneof("content") == "tool_use"
        }
        facts = [facts_of(call.metadata_json) for call in calls.values()]
        begun = next((one for one in facts if one.get(KEY_FACT) == self._named("results")), None)
        if begun is None or any(waits_for_client(call) for call in calls.values()):
            return None
        for one in self._request.input:
            call = calls.get(one.call_id) if isinstance(one, Result) else None
            if call is not None and isinstance(one, Result) and call.output != one.output:
                words = "Idempotency-Key: was used for another request"
                raise ApiError(words, param="Idempotency-Key", code="request_id_reused")
        return ResponseId(place.session_id, message.turn_id, int(begun[SEGMENT_FACT]))

    async def behind_response(self, previous_id: str) -> ResponseId:
        """Goes on behind a response: in its session, or in a copy when that has gone on already."""
        try:
            previous = read_response_id(previous_id)
            if await self._was_stored(previous.session_id):
                return await self._send(previous.session_id, await self._resolved(self._request.input))
            _, stream = await following.current(self._client, previous)
        except UnknownIdError:
            raise _no_previous(previous_id) from None
        except ApiError as error:
            raise _no_previous(previous_id) if error.status == 404 else error from None
        if not stream.ended:
            words = f"Previous response '{previous_id}' has not ended."
            raise ApiError(words, status=409, param="previous_response_id", code="conversation_locked")
        if await following.waited_for(self._client, stream.waiting):
            return await self._answer_calls(previous.session_id, self._request.input, previous)
        path = await self._client.messages(previous.session_id)
        last = next((one for one in reversed(path) if one.type != MESSAGE_TYPE_HOST), None)
        if last is not None and last.turn_id == previous.turn_id:
            return await self._send(previous.session_id, await self._resolved(self._request.input))
        through = [one.message_id for one in path if one.turn_id == previous.turn_id]
        if not through or stream.waiting:
            words = (
                "names a response that cannot be gone on with: its conversation was changed, or its calls are answered"
            )
            raise wrong("previous_response_id", words)
        entries = self._entries(await self._resolved(self._request.input))
        fork = ForkSessionRequest(
            session_id=previous.session_id,
            through_message_id=through[-1],
            settings=SessionSettings(labels={FORK_LABEL: previous_id}),
            request_id=self._named("fork"),
        )
        if not self._request.store:
            fork.settings.labels[STORE_LABEL] = "false"
        fork.settings_mask.paths.append("labels")
        copy = await self._client.call(self._sessions.ForkSession, fork)
        return await self._store_in_own(copy.session.id, entries)

    async def in_conversation(self, conversation: str) -> ResponseId:
        """Goes on in a conversation."""
        try:
            session_id = read_conversation_id(conversation)
            if any(isinstance(one, Result | Approval) for one in self._request.input):
                known = [one for one in self._request.input if isinstance(one, Result | Approval)]
                if len(known) == len(self._request.input) and await self._are_open(session_id, known):
                    return await self._answer_calls(session_id, self._request.input, None)
            return await self._send(session_id, await self._resolved(self._request.input))
        except (UnknownIdError, NotFoundError):
            raise not_found("Conversation", conversation) from None

    async def anew(self) -> ResponseId:
        """Goes on with a turn whose history is the input, or begins a session with the input."""
        given = self._request.input
        last = next((at for at in range(len(given), 0, -1) if not isinstance(given[at - 1], Result | Approval)), 0)
        answers = given[last:]
        if (
            answers
            and (session_id := await self._own_session(answers))
            and await self._is_same(session_id, given, last)
        ):
            return await self._answer_calls(session_id, answers, None)
        entries = self._entries(await self._resolved(given))
        is_alone = len(entries) == 1 and entries[0].type == MESSAGE_TYPE_USER
        if is_alone and self._request.store and not self._request.keeps_all:
            return await self._send_last("", entries[0])
        settings = SessionSettings()
        if not is_alone or not self._request.store:
            settings.labels[DOOR_LABEL] = DOOR
        if not self._request.store:
            settings.labels[STORE_LABEL] = "false"
        if self._request.keeps_all:
            settings.compaction = COMPACTION_MODE_OFF
        created = await self._client.call(
            self._sessions.CreateSession, CreateSessionRequest(settings=settings, request_id=self._named("session"))
        )
        return await self._store_in_own(created.id, entries)

    async def _store_in_own(self, session_id: str, entries: Sequence[Entry]) -> ResponseId:
        """Stores messages in a session made for this request, and answers them: what is refused leaves nothing."""
        try:
            return await self._store(session_id, entries, [])
        except TurnwireError as error:
            if leaves_nothing(error):
                await self._client.call(self._sessions.DeleteSession, DeleteSessionRequest(session_id=session_id))
            raise

    async def _send(self, session_id: str, given: Sequence[Input]) -> ResponseId:
        """Stores the input in a session that others use, too, and answers it: what is refused leaves nothing."""
        entries = self._entries(given)
        if len(entries) == 1 and entries[0].type == MESSAGE_TYPE_USER:
            return await self._send_last(session_id, entries[0])
        if not await self._was_stored(session_id):
            await self._check_idle(session_id)
        stored: list[str] = []
        try:
            return await self._store(session_id, entries, stored)
        except TurnwireError as error:
            if leaves_nothing(error):
                await take_back(self._client, session_id, stored)
            raise

    async def _was_stored(self, session_id: str) -> bool:
        """Returns whether a request of this key has stored messages that are still there, and goes by their names."""
        while self._has_key and (found := await self._message_named(session_id, self._named("item 0"))):
            if found.turn_id or found.message_id in [one.message_id for one in await self._client.messages(session_id)]:
                return True
            self._attempt += 1
        return False

    async def _message_named(self, session_id: str, request_id: str) -> SessionMessage | None:
        """Returns the message that a request stored in a session."""
        request = GetMessageRequest(session_id=session_id, message_request_id=request_id)
        try:
            return (await self._client.call(self._messages.GetMessage, request)).message
        except NotFoundError:
            return None

    async def _check_idle(self, session_id: str) -> None:
        """Raises ApiError (409) while a turn runs."""
        asked = GetSessionRequest(session_id=session_id)
        session = (await self._client.call(self._sessions.GetSession, asked)).session
        if session.status != SESSION_STATUS_IDLE:
            words = "Another response of this conversation has not ended."
            raise ApiError(words, status=409, code="conversation_locked")

    async def _store(self, session_id: str, entries: Sequence[Entry], stored: list[str]) -> ResponseId:
        """Stores messages, of which `stored` tells the ids, and answers them."""
        for at, entry in enumerate(entries):
            if at == len(entries) - 1 and entry.type == MESSAGE_TYPE_USER:
                return await self._send_last(session_id, entry, at)
            request = append_request(session_id, entry.type, entry.parts, self._named(f"item {at}"))
            if at == len(entries) - 1:
                request.metadata_json = self._facts_json()
            stored.append((await self._client.call(self._messages.AppendMessage, request)).message_id)
        start = StartTurnRequest(
            session_id=session_id,
            user_message_id=stored[-1],
            settings=self._request.settings,
            busy_policy=BUSY_POLICY_REJECT,
            request_id=self._named("turn"),
        )
        started = await self._client.call(self._client.stub(TurnServiceStub).StartTurn, start)
        return ResponseId(session_id, started.turn.turn_id, 0)

    async def _send_last(self, session_id: str, entry: Entry, at: int = 0) -> ResponseId:
        """Stores a message and begins its turn: both or neither."""
        settings = self._request.settings
        send = SendMessageRequest(
            session_id=session_id,
            parts=entry.parts,
            busy_policy=BUSY_POLICY_REJECT,
            tools=settings.tools,
            options=settings.options,
            system=settings.system if settings.HasField("system") else None,
            metadata_json=self._facts_json(),
            sender=self._request.sender,
            request_id=self._named(f"item {at}"),
        )
        if settings.HasField("model"):
            model = settings.model
            selected = ModelSelection(provider=ProviderInfo(id=model.provider_id), model_id=model.model_id)
            send.model.CopyFrom(selected)
        sent = await self._client.call(self._messages.SendMessage, send)
        return ResponseId(sent.session_id, sent.turn_id, 0)

    async def _answer_calls(self, session_id: str, answers: Sequence[Input], previous: ResponseId | None) -> ResponseId:
        """Answers the calls and questions for which a turn waits; nothing is stored unless all of them are answered."""
        for one in answers:
            if not isinstance(one, Result | Approval):
                raise wrong("input", "can only have outputs and approvals while the turn waits for them")
        found = [(one, _place_of(one)) for one in answers if isinstance(one, Result | Approval)]
        message_ids = {place.message_id for _, place in found}
        if len(message_ids) != 1 or {place.session_id for _, place in found} != {session_id}:
            raise _no_call(found[-1][0])
        try:
            message = await following.message_of(self._client, session_id, next(iter(message_ids)))
        except NotFoundError:
            raise _no_call(found[0][0]) from None
        open_calls = await self._open_calls(message, found)
        named = previous or await self._waiting(session_id, message, found[0][1].part)
        segment = named.segment + 1
        facts = self._facts_json({KEY_FACT: self._named("results"), SEGMENT_FACT: segment} if self._has_key else {})
        for one, place in found:
            if place.part not in open_calls:
                continue
            await self._answer_call(session_id, open_calls[place.part], one, facts)
            if isinstance(one, Result):
                facts = ""
        return ResponseId(session_id, message.turn_id, segment)

    async def _open_calls(
        self, message: SessionMessage, found: Sequence[tuple[Result | Approval, ItemId]]
    ) -> dict[int, ToolCallState]:
        """Returns the calls that the answers are for, by index, without those that an earlier attempt has decided.

        Raises:
            ApiError: an answer is for no call that waits for it, or a call that waits has no answer.
        """
        calls = {part.index: part.tool_use for part in message.parts if part.WhichOneof("content") == "tool_use"}
        decided: dict[str, bool] | None = None
        open_calls = {}
        for one, place in found:
            call = calls.get(place.part)
            if call is None:
                raise _no_call(one)
            if isinstance(one, Result) or call.permission_id:
                open_calls[place.part] = call
                continue
            if self._has_key and decided is None:
                _, decided = await self._decided(place, message)
            if not decided or decided.get(one.request_id) != one.approve:
                raise _no_call(one)
        for index, call in calls.items():
            if index not in open_calls and waits_for_client(call):
                missing = item_id("call_", message.session_id, message.message_id, index)
                raise ApiError(f"No tool output found for function call {missing}.", param="input")
        return open_calls

    async def _answer_call(self, session_id: str, call: ToolCallState, one: Result | Approval, facts: str) -> None:
        if isinstance(one, Result):
            result = SubmitToolResultRequest(
                session_id=session_id, tool_call_id=call.id, output=one.output, metadata_json=facts
            )
            await self._client.call(self._client.stub(ToolServiceStub).SubmitToolResult, result)
        else:
            response = PermissionResponse(
                session_id=session_id,
                permission_id=call.permission_id,
                response="once" if one.approve else "reject",
                reason=one.reason,
            )
            await self._client.call(self._client.stub(PermissionServiceStub).RespondToPermission, response)

    async def _waiting(self, session_id: str, message: SessionMessage, index: int) -> ResponseId:
        """Returns the response that ended with a call, or with the question whether it may run."""
        ids = {item_id(prefix, session_id, message.message_id, index) for prefix in ("fc_", "mcpr_")}
        for segment in range(MAX_SEGMENTS):
            named = ResponseId(session_id, message.turn_id, segment)
            _, stream = await following.current(self._client, named)
            if not stream.ended or ids & {item["id"] for item in stream.waiting}:
                return named
        raise wrong("input", "goes on with a turn that has too many responses")

    async def _are_open(self, session_id: str, answers: Sequence[Result | Approval]) -> bool:
        """Returns whether the answers are for calls of a session that wait."""
        try:
            places = [_place_of(one) for one in answers]
            if any(place.session_id != session_id for place in places):
                return False
            calls = [{"id": item_id("fc_", *place)} for place in places]
            return bool(await following.waited_for(self._client, calls))
        except (ApiError, NotFoundError, IndexError):
            return False

    async def _own_session(self, answers: Sequence[Input]) -> str:
        """Returns the session whose turn waits for the answers; "" when there is none."""
        known = [one for one in answers if isinstance(one, Result | Approval)]
        try:
            session_id = _place_of(known[0]).session_id
        except ApiError:
            return ""
        return session_id if await self._are_open(session_id, known) else ""

    async def _is_same(self, session_id: str, given: Sequence[Input], last: int) -> bool:
        """Returns whether the input is what the session has, but for the answers at its end."""
        stored = [item for one in await self._client.messages(session_id) for item in items_of(one)]
        by_id = {item["id"]: item for item in stored}
        said: list[Any] = []
        results: dict[str, str] = {}
        for one in given[:last]:
            items = [by_id.get(one.item_id)] if isinstance(one, Reference) else [one]
            for item in items:
                if isinstance(item, Result):
                    results[item.call_id] = item.output
                elif isinstance(item, dict) and item["type"] == "function_call_output":
                    results[item["call_id"]] = item["output"]
                elif not isinstance(item, dict) or item["type"] in ("message", "function_call"):
                    said.append(_compared(item))
        mine = [_compared(item) for item in stored if item["type"] in ("message", "function_call")]
        outputs = {item["call_id"]: item["output"] for item in stored if item["type"] == "function_call_output"}
        return said == mine and results == outputs

    async def _resolved(self, given: Sequence[Input]) -> list[Input]:
        """Returns the input with what its references name."""
        resolved: list[Input] = []
        for one in given:
            if not isinstance(one, Reference):
                resolved.append(one)
                continue
            try:
                place = read_item_id(one.item_id)
                message = await following.message_of(self._client, place.session_id, place.message_id)
                item = next(item for item in items_of(message) if item["id"] == one.item_id)
            except (UnknownIdError, NotFoundError, StopIteration):
                raise not_found("Item", one.item_id) from None
            resolved += read_input([item], one.param)
        return resolved

    def _entries(self, given: Sequence[Input]) -> list[Entry]:
        return entries_of(given, ends_with_request=True)

    def _facts_json(self, more: Mapping[str, Any] | None = None) -> str:
        facts = {**self._request.facts, **(more or {})}
        return json.dumps({FACTS_KEY: facts}, ensure_ascii=False) if facts else ""

    def _named(self, step: str) -> str:
        """Returns the name of one step of the request: at most 128 characters."""
        attempt = f"\0{self._attempt}" if self._attempt else ""
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self._key}\0{step}{attempt}"))


async def take_back(client: Client, session_id: str, message_ids: Sequence[str]) -> bool:
    """Hides the newest messages of a conversation.

    Returns:
        Whether they are hidden: not when others stand behind them, or when a turn has begun.
    """
    path = [one.message_id for one in await client.messages(session_id)]
    if not message_ids or path[-len(message_ids) :] != list(message_ids):
        return False
    sessions = client.stub(SessionServiceStub)
    revert = RevertSessionRequest(session_id=session_id, before_message_id=message_ids[0])
    try:
        done = await client.call(sessions.RevertSession, revert)
        if done.hidden_messages > len(message_ids):  # what another client has stored meanwhile
            await client.call(sessions.RestoreSession, RestoreSessionRequest(session_id=session_id))
            return False
    except FailedPreconditionError:
        return False
    return True


def leaves_nothing(error: TurnwireError) -> bool:
    """Returns whether a request was refused: otherwise an answer was lost, or the messages are another request's."""
    is_lost = isinstance(error, UnavailableError) or not error.reason
    return not is_lost and error.reason != "REQUEST_ID_REUSED"


def entries_of(given: Sequence[Input], *, ends_with_request: bool) -> list[Entry]:
    """Returns the messages that items make: what a model said and called together, with the results of its calls.

    Args:
        given: The items.
        ends_with_request: Whether a model is to answer them: they end with what a user said, or with results.

    Raises:
        ApiError: a call has no result, or a result no call.
    """
    results = {one.call_id: one for one in given if isinstance(one, Result)}
    called = {one.call_id for one in given if isinstance(one, Called)}
    entries: list[Entry] = []
    answer: list[MessagePart] = []
    is_answered = False
    """Whether results stand behind the answer: what a model says behind them is another one."""

    def end_answer() -> None:
        if answer:
            entries.append(Entry(MESSAGE_TYPE_ASSISTANT, tuple(answer)))
            answer.clear()

    for one in given:
        if is_answered and not isinstance(one, Result):
            end_answer()
            is_answered = False
        if isinstance(one, Said) and one.role == "assistant":
            answer += [part for part in one.parts if part.refusal.text or part.text.text]
        elif isinstance(one, Called):
            if (result := results.get(one.call_id)) is None:
                raise ApiError(f"No tool output found for function call {one.call_id}.", param="input")
            call = AppendedToolCall(name=one.name, call_id=one.call_id, input_json=one.arguments)
            call.result.CopyFrom(AppendedToolResult(output=result.output))
            answer.append(MessagePart(tool_call=call))
        elif isinstance(one, Said):
            end_answer()
            entries.append(Entry(MESSAGE_TYPE_USER if one.role == "user" else MESSAGE_TYPE_SYSTEM, one.parts))
        elif isinstance(one, Result):
            if one.call_id not in called:
                raise _no_call(one)
            is_answered = True
        elif isinstance(one, Approval):
            raise _no_call(one)
    end_answer()
    is_request = entries and (entries[-1].type == MESSAGE_TYPE_USER or isinstance(given[-1], Result))
    if ends_with_request and not is_request:
        raise wrong("input", "must end with what a user said, or with function_call_output")
    return entries


def append_request(session_id: str, type: int, parts: Sequence[MessagePart], request_id: str) -> AppendMessageRequest:
    """Returns the request that stores a message without a turn."""
    request = AppendMessageRequest(session_id=session_id, type=type, parts=parts, request_id=request_id)  # type: ignore[arg-type]
    if type == MESSAGE_TYPE_ASSISTANT:
        has_calls = any(part.HasField("tool_call") for part in parts)
        request.finish_reason = FINISH_REASON_TOOL_USE if has_calls else FINISH_REASON_STOP
    return request


def _place_of(one: Result | Approval) -> ItemId:
    try:
        return read_item_id(one.call_id if isinstance(one, Result) else one.request_id)
    except UnknownIdError:
        raise _no_call(one) from None


def _no_call(one: Result | Approval) -> ApiError:
    if isinstance(one, Result):
        words = f"No tool call found for function call output with call_id {one.call_id}."
    else:
        words = f"No approval request found with id {one.request_id}."
    return ApiError(words, param=one.param)


def _no_previous(previous_id: str) -> ApiError:
    words = f"Previous response with id '{previous_id}' not found."
    return ApiError(words, status=404, param="previous_response_id", code="previous_response_not_found")


def _compared(item: Any) -> Any:
    """Returns what has to be equal of an item, whether it was given or is stored."""
    if isinstance(item, Said):
        return item.role, "".join(part.text.text or part.refusal.text for part in item.parts)
    if isinstance(item, Called):
        return item.call_id, item.name, item.arguments
    if isinstance(item, dict) and item["type"] == "function_call":
        return item["call_id"], item["name"], item["arguments"]
    if isinstance(item, dict) and item["type"] == "message":
        return item["role"], "".join(part.get("text") or part.get("refusal") or "" for part in item["content"])
    return None
