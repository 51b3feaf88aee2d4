"""The commands of the contract: what must be there first, one call of a caller, and what must be there afterwards."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.field_mask_pb2 import FieldMask

from opencode.file.upload_pb2 import GetUploadRequest
from opencode.message.content_pb2 import MESSAGE_TYPE_ASSISTANT, MESSAGE_TYPE_HOST, MESSAGE_TYPE_USER, SessionMessage
from opencode.message.message_pb2 import AbortSessionRequest, AppendMessageRequest
from opencode.question.question_pb2 import QUESTION_ACTION_ACCEPT, QUESTION_ACTION_DECLINE, AnswerQuestionRequest
from opencode.session.session_pb2 import (
    CreateSessionRequest,
    ForkSessionRequest,
    RevertSessionRequest,
    SessionSettings,
    UpdateDirectoryRequest,
    UpdateSessionRequest,
)
from opencode.tool.tool_pb2 import ListPermissionsRequest, PermissionResponse, ToolResultFile
from opencode.transfer.transfer_pb2 import IMPORT_OUTCOME_CREATED, IMPORT_OUTCOME_UNCHANGED, ImportSessionsRequest
from opencode.turn.turn_pb2 import BUSY_POLICY_INTERRUPT, BUSY_POLICY_QUEUE, BUSY_POLICY_REJECT, BUSY_POLICY_STEER
from opencode.turn.turn_service_pb2 import (
    EditQueuedMessageRequest,
    ListAlternativesRequest,
    MoveQueuedMessageRequest,
    RegenerateMessageRequest,
    RemoveQueuedMessageRequest,
    SelectAlternativeRequest,
    StartTurnRequest,
)
from tests.support.clients.answers import answer_of, append_answer, append_user, called, results_of
from tests.support.clients.archives import upload
from tests.support.clients.conversation import (
    ask,
    file,
    messages_of,
    new_session,
    refusal_of,
    refused,
    session_of,
    streamed,
    talk,
    text,
    tool,
    watching,
    words_of,
)
from tests.support.clients.tool_calls import claim, release, renew, result
from tests.support.clients.uploads import is_used, uploaded
from tests.support.oracles.archives import golden_records
from tests.support.oracles.golden_history import HISTORY
from tests.support.servers.moving import lines
from tests.support.servers.running import Client


@dataclass
class Case:
    """One time that a command is carried out: where, and with what."""

    request_id: str
    sessions: list[str] = field(default_factory=list)
    """The sessions that are looked at; the first one is that of the command."""
    ids: dict[str, Any] = field(default_factory=dict)
    """Ids that the set-up has made, by name."""
    is_unanswered: bool = False
    """Whether the server was killed before it had answered the call."""
    disturbed_at: int = 0
    """The number of the first commit that fails, or of the last one before a kill; 0 when nothing was disturbed that
    comes after the call."""

    @property
    def session_id(self) -> str:
        """The session of the command."""
        return self.sessions[0]

    def __getitem__(self, name: str) -> Any:
        """Returns what the set-up has made."""
        return self.ids[name]


Step = Callable[[Client, Case], Awaitable[Any]]


async def _nothing(_client: Client, _case: Case) -> None:
    """Nothing."""


@dataclass(frozen=True)
class Command:
    """One row of the table."""

    method: str
    """Service and method."""
    set_up: Step
    """Makes what the command is about, and leaves all at rest: nothing runs, or a turn waits for people or clients."""
    act: Step
    """Calls the method; the same call each time."""
    there: Step
    """Asserts what must be there once the call has succeeded and all is at rest; also when it was made again."""
    own: tuple[int, ...] = (1,)
    """The commits that the answer waits for, by number: when one of them fails, so does the call."""
    later: tuple[int, ...] = ()
    """Those of them that fail when readers see already what the ones before have changed."""
    repeated: str = ""
    """The reason why the call is refused once it has happened; "" when it may be made again and has one effect."""
    late: str = ""
    """The same when all has come to rest."""
    toml: str = ""
    """More of the configuration."""
    asks_people: bool = False
    """Whether it needs the program whose tools ask people."""
    at_rest: Step = _nothing
    """Further condition to wait for before all is at rest."""
    removes: bool = False
    """Whether its session is gone afterwards."""
    lasts: bool = False
    """Whether later turns of its session no longer wait for what other commands are about."""

    @property
    def is_of_session(self) -> bool:
        """Whether it is about a session that its set-up needs."""
        return self.set_up is not _nothing and not self.method.startswith(("file.", "transfer."))


RULES = '[log]\nlevel = "warning"\n[permissions]\n"danger" = "ask"\n'
HOLD = "hold\n/tool look {}\n/step\nheld"
"""A message whose turn waits for a client."""
SAID = "said once"
"""The words of the message that a command sends."""


# -- what must be there first


async def a_session(client: Client, case: Case) -> None:
    """An empty session, unless the case is to be carried out in one that is there."""
    if not case.sessions:
        case.sessions.append(await new_session(client, title="Plans"))


async def a_conversation(client: Client, case: Case) -> None:
    """A question with its answer, twice."""
    await a_session(client, case)
    for number in (1, 2):
        said = await talk(client, f"question {number}", case.session_id)
        case.ids |= {f"message_{number}": said.message_id, f"turn_{number}": said.turn_id}
    await until_idle(client, case.session_id)


async def a_busy_session(client: Client, case: Case) -> None:
    """A turn that waits for a client."""
    await a_session(client, case)
    await hold(client, case)


async def hold(client: Client, case: Case, words: str = HOLD) -> None:
    """Lets a turn wait for the results of all calls of "look" and the permissions of all calls of "danger"."""
    request = ask(words, case.session_id, tools=[tool("look"), tool("danger")])
    accepted = await client.messages.SendMessage(request)
    case.ids |= {"turn": accepted.turn_id, "held": accepted}
    async with watching(client, case.session_id, after_sequence=accepted.sequence) as watch:
        calls, asked = words.count("/tool look"), words.count("/tool danger")
        if calls:
            await watch.until_kind("tool_call_updated", calls)
        if asked:
            await watch.until_kind("permission_asked", asked)
    case.ids["calls"] = [e.tool_call_updated.state for e in watch.events if e.HasField("tool_call_updated")]


async def a_queue(client: Client, case: Case) -> None:
    """A turn that waits for a client, and two messages that wait for it."""
    await a_busy_session(client, case)
    for name in ("first", "second"):
        case.ids[name] = (await client.messages.SendMessage(ask(f"{name} waits", case.session_id))).message_id


async def a_late_turn(client: Client, case: Case) -> None:
    """A turn that waits for a client, and a stored message whose turn waits for it."""
    await a_session(client, case)
    case.ids["late"] = await append_user(client, case.session_id, "late")
    await hold(client, case)
    request = StartTurnRequest(session_id=case.session_id, user_message_id=case["late"], busy_policy=BUSY_POLICY_QUEUE)
    await client.turns.StartTurn(request)


async def a_call(client: Client, case: Case) -> None:
    """A call that waits for a client."""
    await a_busy_session(client, case)
    [case.ids["call"]] = case["calls"]


async def a_leased_call(client: Client, case: Case) -> None:
    """A call that a client has claimed."""
    await a_call(client, case)
    claimed = await client.tools.ClaimToolCall(claim(case.session_id, case["call"].id))
    case.ids["lease"] = claimed.lease


async def a_permission(client: Client, case: Case) -> None:
    """Two calls that wait for a person, and one that waits for a client."""
    await a_session(client, case)
    await hold(client, case, 'hold\n/tool danger {"a": 1}\n/tool danger {"a": 2}\n/tool look {}\n/step\nheld')
    request = ListPermissionsRequest(session_id=case.session_id)
    case.ids["permission"] = (await client.permissions.ListPermissions(request)).permissions[0]


async def a_question(client: Client, case: Case) -> None:
    """A tool that asks a person."""
    await a_session(client, case)
    accepted = await client.messages.SendMessage(ask('/tool web.paint {"what": "the door"}', case.session_id))
    async with watching(client, case.session_id, after_sequence=accepted.sequence) as watch:
        asked = (await watch.until_kind("question_asked")).question_asked.question
    case.ids["question"] = asked.question_id


async def an_upload(client: Client, case: Case) -> None:
    """A session, and an upload that is complete."""
    await a_session(client, case)
    case.ids["upload"] = await uploaded(client, b"the plan", filename="plan.txt", mime="text/plain")


async def a_call_and_an_upload(client: Client, case: Case) -> None:
    """A call that waits for a client, and an upload that is complete."""
    await a_call(client, case)
    case.ids["upload"] = await uploaded(client, b"the plan", filename="plan.txt", mime="text/plain")


async def a_begun_upload(client: Client, case: Case) -> None:
    """An upload with its first bytes."""
    case.ids["upload"] = await uploaded(client, b"four", last=False)


async def two_answers(client: Client, case: Case) -> None:
    """A question with two answers, of which the second one is chosen."""
    await a_conversation(client, case)
    listed = await messages_of(client, case.session_id)
    case.ids["answer"] = next(one.message_id for one in listed if one.answers_message_id == case["message_2"])
    request = RegenerateMessageRequest(session_id=case.session_id, message_id=case["message_2"])
    made = await client.turns.RegenerateMessage(request)
    async with watching(client, case.session_id, after_sequence=made.sequence) as watch:
        await watch.until_turn_ended(made.turn.turn_id)
    await until_idle(client, case.session_id)


async def a_cleared_conversation(client: Client, case: Case) -> None:
    """A conversation whose messages are hidden."""
    await a_conversation(client, case)
    await client.sessions.ClearSession(session_id=case.session_id)


async def an_archived_session(client: Client, case: Case) -> None:
    """A session that was put away."""
    await a_session(client, case)
    await client.sessions.ArchiveSession(session_id=case.session_id)


async def a_stored_question(client: Client, case: Case) -> None:
    """A user message without a turn."""
    await a_session(client, case)
    case.ids["message"] = await append_user(client, case.session_id, SAID)


async def an_open_call(client: Client, case: Case) -> None:
    """An answer that the caller has appended, with a call without a result."""
    await a_session(client, case)
    await append_user(client, case.session_id, "look")
    await append_answer(client, case.session_id, text("I look."), called("call_1"))


async def a_long_conversation(client: Client, case: Case) -> None:
    """As much as just fits."""
    await a_session(client, case)
    for number in range(3):
        await talk(client, f"long-{number} " + "word " * 100, case.session_id)
    await until_idle(client, case.session_id)


async def an_archive(client: Client, case: Case) -> None:
    """The upload of an archive with one session."""
    records = golden_records(case.request_id, HISTORY[:9])
    case.ids["words"] = "".join(part.content.text for part in HISTORY[0].parts)
    case.ids["source"] = records[0].session.session_id  # type: ignore[union-attr]
    case.ids["archive"] = lines(records)
    case.ids["upload_id"] = await upload(client, case["archive"])


async def until_idle(client: Client, session_id: str) -> None:
    """Waits until nothing runs or waits."""
    while True:
        session = await session_of(client, session_id)
        if not session.active_turn_id and not session.queued_messages:
            return


# -- what must be there afterwards


async def said(client: Client, case: Case, words: str = SAID) -> list[SessionMessage]:
    """Returns the user messages with these words that were not dropped."""
    found = await messages_of(client, case.session_id)
    return [one for one in found if one.type == MESSAGE_TYPE_USER and words_of(one).split("\n")[0] == words]


async def once(client: Client, case: Case) -> None:
    """The message is there once, and its turn has ended."""
    [message] = await said(client, case)
    assert message.turn_id


async def once_without_a_turn(client: Client, case: Case) -> None:
    """The message is there once."""
    assert len(await said(client, case)) == 1


def sending(first: str = "", **fields: Any) -> Step:
    """Returns the call that sends a message."""

    async def act(client: Client, case: Case) -> Any:
        request = ask(f"{SAID}{first}", case.session_id, request_id=case.request_id, **fields)
        return await client.messages.SendMessage(request)

    return act


async def send_to_a_new_session(client: Client, case: Case) -> Any:
    """Sends a message without a session."""
    sent = await client.messages.SendMessage(ask(SAID, request_id=case.request_id))
    case.sessions[:] = [sent.session_id]
    return sent


async def is_the_only_new_one(client: Client, case: Case) -> None:
    """The message has one session."""
    await once(client, case)
    sessions = (await client.sessions.ListSessions()).sessions
    found = [one for one in sessions if one.id == case.session_id]
    assert len(found) == 1


async def send_with_an_upload(client: Client, case: Case) -> Any:
    """Sends a message with an upload as its file."""
    request = ask(SAID, case.session_id, request_id=case.request_id)
    request.parts.append(file(upload_id=case["upload"].upload_id))
    return await client.messages.SendMessage(request)


async def has_the_file(client: Client, case: Case) -> None:
    """The message has the file, and the upload is used."""
    [message] = await said(client, case)
    assert [part.file.filename for part in message.parts if part.HasField("file")] == ["plan.txt"]
    assert await is_used(client, case["upload"])


async def stream(client: Client, case: Case) -> Any:
    """Sends a message and reads up to the answer that it was accepted: what follows may be told by another stream."""
    call = streamed(client, ask(SAID, case.session_id, request_id=case.request_id))
    try:
        async for answer in call:
            if answer.HasField("accepted"):
                return answer.accepted
    finally:
        call.cancel()
    raise AssertionError("the stream ended before the message was accepted")


def starting(policy: Any) -> Step:
    """Returns the call that answers a stored message."""

    async def act(client: Client, case: Case) -> Any:
        request = StartTurnRequest(session_id=case.session_id, user_message_id=case["message"], busy_policy=policy)
        request.request_id = case.request_id
        return await client.turns.StartTurn(request)

    return act


async def a_stored_question_of_a_busy_session(client: Client, case: Case) -> None:
    """A user message without a turn, and a turn that waits for a client."""
    await a_stored_question(client, case)
    await hold(client, case)


def appending(kind: Any, *words: str) -> Step:
    """Returns the call that stores a message without a turn."""

    async def act(client: Client, case: Case) -> Any:
        parts = [text(one) for one in words]
        request = AppendMessageRequest(session_id=case.session_id, type=kind, parts=parts, request_id=case.request_id)
        return await client.messages.AppendMessage(request)

    return act


async def append_call(client: Client, case: Case) -> Any:
    """Appends an answer with a call."""
    request = answer_of(case.session_id, text(SAID), called("call_1", "seen"), request_id=case.request_id)
    return await client.messages.AppendMessage(request)


async def append_result(client: Client, case: Case) -> Any:
    """Appends the result of a call."""
    return await client.messages.AppendMessage(
        results_of(case.session_id, ("call_1", "seen"), request_id=case.request_id)
    )


async def host_once(client: Client, case: Case) -> None:
    """The host message is there once."""
    found = await messages_of(client, case.session_id)
    assert [words_of(one) for one in found if one.type == MESSAGE_TYPE_HOST] == [SAID]


async def answer_once(client: Client, case: Case) -> None:
    """The answer is there once, with the result of its call."""
    found = [one for one in await messages_of(client, case.session_id) if one.type == MESSAGE_TYPE_ASSISTANT]
    assert len(found) == 1
    assert [part.tool_use.output for part in found[0].parts if part.HasField("tool_use")] == ["seen"]


def aborting(*, keep_queue: bool = False) -> Step:
    """Returns the call that aborts the turn that holds."""

    async def act(client: Client, case: Case) -> Any:
        request = AbortSessionRequest(session_id=case.session_id, expected_turn_id=case["turn"], keep_queue=keep_queue)
        return await client.messages.AbortSession(request)

    return act


async def aborted(client: Client, case: Case) -> None:
    """The turn has ended, and its calls too; what waited is gone."""
    found = await messages_of(client, case.session_id)
    said = [words_of(one).split("\n")[0] for one in found if one.type == MESSAGE_TYPE_USER]
    assert said == ["hold"]


async def aborted_with_its_queue_kept(client: Client, case: Case) -> None:
    """The waiting messages were answered, in their order."""
    found = [words_of(one) for one in await messages_of(client, case.session_id) if one.type == MESSAGE_TYPE_USER]
    assert [one.split("\n")[0] for one in found] == ["hold", "first waits", "second waits"]


def editing(**fields: Any) -> Step:
    """Returns the call that edits the second waiting message."""

    async def act(client: Client, case: Case) -> Any:
        request = EditQueuedMessageRequest(
            session_id=case.session_id,
            message_id=case["second"],
            parts=[text(SAID)],
            request_id=case.request_id,
            **fields,
        )
        return await client.turns.EditQueuedMessage(request)

    return act


async def edited(client: Client, case: Case) -> None:
    """The message has its new words."""
    await once(client, case)
    assert not await said(client, case, "second waits")
    assert len(await said(client, case, "first waits")) == 1


async def move(client: Client, case: Case) -> Any:
    """Moves the second waiting message before the first one."""
    request = MoveQueuedMessageRequest(session_id=case.session_id, message_id=case["second"])
    request.before_message_id, request.request_id = case["first"], case.request_id
    return await client.turns.MoveQueuedMessage(request)


async def moved(client: Client, case: Case) -> None:
    """They were answered in the new order."""
    found = [words_of(one) for one in await messages_of(client, case.session_id) if one.type == MESSAGE_TYPE_USER]
    assert [one for one in found if one.endswith("waits")] == ["second waits", "first waits"]


def removing(name: str) -> Step:
    """Returns the call that removes a waiting message."""

    async def act(client: Client, case: Case) -> Any:
        request = RemoveQueuedMessageRequest(session_id=case.session_id, request_id=case.request_id)
        request.message_id = case[name]
        return await client.turns.RemoveQueuedMessage(request)

    return act


async def removed(client: Client, case: Case) -> None:
    """One is gone, the other was answered."""
    assert not await said(client, case, "first waits")
    assert len(await said(client, case, "second waits")) == 1


async def late_is_back(client: Client, case: Case) -> None:
    """The message of the late turn is in the conversation, once and without a turn.

    An abort without an answer may have ended the running turn alone.
    """
    [late] = await said(client, case, "late")
    assert not late.turn_id or case.is_unanswered


async def a_known_late_turn(client: Client, case: Case) -> None:
    """As `a_late_turn`, with the message that waits."""
    await a_late_turn(client, case)
    queue = await client.turns.ListQueue(session_id=case.session_id)
    [case.ids["waiting"]] = [entry.message_id for entry in queue.entries]


async def submit(client: Client, case: Case) -> Any:
    """Submits the result of the call."""
    return await client.tools.SubmitToolResult(result(case["held"], case["call"], "seen by it", **_lease_of(case)))


def _lease_of(case: Case) -> dict[str, str]:
    return {"lease_id": case["lease"].lease_id} if "lease" in case.ids else {}


async def submit_with_an_upload(client: Client, case: Case) -> Any:
    """Submits a result with a file."""
    files = [ToolResultFile(upload_id=case["upload"].upload_id)]
    return await client.tools.SubmitToolResult(result(case["held"], case["call"], "seen by it", files=files))


async def call_of(client: Client, case: Case) -> Any:
    """Returns the call as it is stored."""
    found = [part.tool_use for one in await messages_of(client, case.session_id) for part in one.parts]
    [call] = [one for one in found if one.id == case["call"].id]
    return call


async def submitted(client: Client, case: Case) -> None:
    """The call has this result."""
    call = await call_of(client, case)
    assert (call.status, call.output) == ("success", "seen by it")


async def submitted_with_its_file(client: Client, case: Case) -> None:
    """The call has this result and the file, and the upload is used."""
    await submitted(client, case)
    assert len((await call_of(client, case)).files) == 1
    assert await is_used(client, case["upload"])


async def claim_it(client: Client, case: Case) -> Any:
    """Claims the call."""
    claimed = await client.tools.ClaimToolCall(claim(case.session_id, case["call"].id, request_id=case.request_id))
    case.ids["lease"] = claimed.lease
    return claimed


async def renew_it(client: Client, case: Case) -> Any:
    """Extends the lease, with a line of the log."""
    request = renew(case.session_id, case["call"].id, case["lease"], "a line", request_id=case.request_id)
    return await client.tools.RenewToolCall(request)


async def release_it(client: Client, case: Case) -> Any:
    """Gives the lease up."""
    request = release(case.session_id, case["call"].id, case["lease"], request_id=case.request_id)
    released = await client.tools.ReleaseToolCall(request)
    case.ids["released"] = True
    return released


async def has_its_line(client: Client, case: Case) -> None:
    """The line is in the log of the call, once."""
    assert list((await call_of(client, case)).logs) == ["a line"]


async def call_ended(client: Client, case: Case) -> None:
    """The call has a result."""
    assert (await call_of(client, case)).status in ("success", "error")


def responding(word: str) -> Step:
    """Returns the call that answers a permission request."""

    async def act(client: Client, case: Case) -> Any:
        request = PermissionResponse(session_id=case.session_id, permission_id=case["permission"].id, response=word)
        return await client.permissions.RespondToPermission(request)

    return act


def permitted(is_allowed: bool) -> Step:
    """Returns the check that the call ran, or did not."""

    async def check(client: Client, case: Case) -> None:
        found = [part.tool_use for one in await messages_of(client, case.session_id) for part in one.parts]
        [call] = [one for one in found if one.id == case["permission"].tool_call_id]
        assert (call.status == "success") == is_allowed, call

    return check


def answering(action: Any, content_json: str = "") -> Step:
    """Returns the call that answers a question."""

    async def act(client: Client, case: Case) -> Any:
        request = AnswerQuestionRequest(
            session_id=case.session_id,
            question_id=case["question"],
            action=action,
            content_json=content_json,
            request_id=case.request_id,
        )
        return await client.questions.AnswerQuestion(request)

    return act


GOES_ON = 2
"""The number of the commit by which a tool goes on with an answer."""

NOT_PAINTED = {
    "the turn ended before the tool answered",
    "the server was restarted while the tool ran; it may or may not have had its effect",
}
"""Why a tool that went on with an answer may have no result: it runs once."""


def painted(output: str) -> Step:
    """Returns the check that the tool went on with the answer."""

    async def check(client: Client, case: Case) -> None:
        found = [part.tool_use for one in await messages_of(client, case.session_id) for part in one.parts]
        [call] = [one for one in found if one.name == "web.paint"]
        assert call.output == output or (case.disturbed_at == GOES_ON and call.error in NOT_PAINTED), call
        assert not (await client.questions.ListQuestions(session_id=case.session_id)).questions

    return check


def regenerating(*new_words: str, **fields: Any) -> Step:
    """Returns the call that answers the first question again, or an edited form of it."""

    async def act(client: Client, case: Case) -> Any:
        request = RegenerateMessageRequest(
            session_id=case.session_id,
            message_id=case["message_1"],
            new_parts=[text(one) for one in new_words],
            request_id=case.request_id,
            **fields,
        )
        return await client.turns.RegenerateMessage(request)

    return act


async def a_busy_conversation(client: Client, case: Case) -> None:
    """A conversation, and a turn that waits for a client."""
    await a_conversation(client, case)
    await hold(client, case)


async def alternatives_of(client: Client, case: Case, **where: Any) -> list[str]:
    """Returns the ids of alternatives."""
    request = ListAlternativesRequest(session_id=case.session_id, **where)
    return [one.message_id for one in (await client.turns.ListAlternatives(request)).messages]


async def answered_again(client: Client, case: Case) -> None:
    """The question has two answers, and the path ends with the new one."""
    assert len(await alternatives_of(client, case, previous_message_id=case["message_1"])) == 2
    found = await messages_of(client, case.session_id)
    assert [words_of(one) for one in found if one.type == MESSAGE_TYPE_USER] == ["question 1"]


async def branched(client: Client, case: Case) -> None:
    """The edited form is an alternative of the question, and the path goes through it."""
    assert len(await alternatives_of(client, case, message_id=case["message_1"])) == 2
    found = await messages_of(client, case.session_id)
    assert [words_of(one) for one in found if one.type == MESSAGE_TYPE_USER] == [SAID]


async def select(client: Client, case: Case) -> Any:
    """Chooses the first answer."""
    request = SelectAlternativeRequest(session_id=case.session_id, message_id=case["answer"])
    request.request_id = case.request_id
    return await client.turns.SelectAlternative(request)


async def selected(client: Client, case: Case) -> None:
    """The path has the first answer."""
    assert (await messages_of(client, case.session_id))[3].message_id == case["answer"]


async def revert(client: Client, case: Case) -> Any:
    """Hides the second question and its answer."""
    request = RevertSessionRequest(session_id=case.session_id, before_message_id=case["message_2"])
    request.request_id = case.request_id
    return await client.sessions.RevertSession(request)


async def clear(client: Client, case: Case) -> Any:
    """Hides all."""
    return await client.sessions.ClearSession(session_id=case.session_id, request_id=case.request_id)


async def restore(client: Client, case: Case) -> Any:
    """Brings back what was hidden."""
    return await client.sessions.RestoreSession(session_id=case.session_id, request_id=case.request_id)


def has(count: int) -> Step:
    """Returns the check that the conversation has so many messages."""

    async def check(client: Client, case: Case) -> None:
        assert len(await messages_of(client, case.session_id)) == count

    return check


async def fork(client: Client, case: Case) -> Any:
    """Copies the conversation through the first answer's question."""
    request = ForkSessionRequest(session_id=case.session_id, through_message_id=case["message_2"])
    request.request_id = case.request_id
    made = await client.sessions.ForkSession(request)
    case.ids["fork"] = made.session.id
    case.sessions[1:] = [made.session.id]
    return made


async def forked(client: Client, case: Case) -> None:
    """There is one copy, with the messages."""
    copied = await messages_of(client, case["fork"])
    assert len(copied) == 3
    sessions = (await client.sessions.ListSessions()).sessions
    copies = [one.id for one in sessions if one.origin.session_id == case.session_id]
    assert copies == [case["fork"]]


async def create(client: Client, case: Case) -> Any:
    """Creates a session."""
    request = CreateSessionRequest(request_id=case.request_id)
    request.settings.title = case.request_id
    made = await client.sessions.CreateSession(request)
    case.sessions[:] = [made.id]
    return made


async def created(client: Client, case: Case) -> None:
    """There is one session of this title."""
    sessions = (await client.sessions.ListSessions(title_text=case.request_id)).sessions
    assert [one.id for one in sessions] == case.sessions


async def update(client: Client, case: Case) -> Any:
    """Changes settings, the title and a label."""
    given = SessionSettings(title="New", labels={"team": "red"}, system="Be kind.")
    request = UpdateSessionRequest(session_id=case.session_id, settings=given, request_id=case.request_id)
    request.update_mask.CopyFrom(FieldMask(paths=["title", "labels", "system"]))
    return await client.sessions.UpdateSession(request)


async def updated(client: Client, case: Case) -> None:
    """They are changed, once."""
    session = await session_of(client, case.session_id)
    assert (session.title, dict(session.settings.labels), session.settings.system) == (
        "New",
        {"team": "red"},
        "Be kind.",
    )
    assert session.revision == 2


async def update_directory(client: Client, case: Case) -> Any:
    """Changes the directory."""
    request = UpdateDirectoryRequest(session_id=case.session_id, directory="/tmp")
    return await client.sessions.UpdateSessionDirectory(request)


async def has_the_directory(client: Client, case: Case) -> None:
    """It is changed, once."""
    session = await session_of(client, case.session_id)
    assert (session.directory, session.revision) == ("/tmp", 2)


async def archive(client: Client, case: Case) -> Any:
    """Puts the session away."""
    return await client.sessions.ArchiveSession(session_id=case.session_id, request_id=case.request_id)


async def unarchive(client: Client, case: Case) -> Any:
    """Brings the session back."""
    return await client.sessions.UnarchiveSession(session_id=case.session_id, request_id=case.request_id)


def archived(is_archived: bool) -> Step:
    """Returns the check of the archive."""

    async def check(client: Client, case: Case) -> None:
        assert (await session_of(client, case.session_id)).HasField("archive_time") == is_archived

    return check


async def said_and_unarchived(client: Client, case: Case) -> None:
    """The message is there, and its session is back."""
    await once(client, case)
    await archived(False)(client, case)


async def delete(client: Client, case: Case) -> Any:
    """Deletes the session."""
    return await client.sessions.DeleteSession(session_id=case.session_id)


async def deleted(client: Client, case: Case) -> None:
    """The session is gone."""
    assert (await refused(session_of(client, case.session_id))).reason == "SESSION_NOT_FOUND"


async def bring_archive(client: Client, case: Case) -> Any:
    """Imports the archive, and reads to the end; a server that has started since knows no name of a request."""
    request = ImportSessionsRequest(upload_id=case["upload_id"], request_id=case.request_id)
    try:
        answers = [answer async for answer in client.transfer.ImportSessions(request)]
    except grpc.aio.AioRpcError as error:
        if refusal_of(error).reason != "UPLOAD_NOT_FOUND":
            raise
        case.ids["upload_id"] = request.upload_id = await upload(client, case["archive"])
        answers = [answer async for answer in client.transfer.ImportSessions(request)]
    brought = [one for answer in answers for one in answer.sessions]
    problems = {one.reason for answer in answers for one in answer.problems}
    assert not problems & {"NOT_STORED", "QUOTA_EXCEEDED"}
    assert [one.outcome in (IMPORT_OUTCOME_CREATED, IMPORT_OUTCOME_UNCHANGED) for one in brought] == [True]
    case.sessions[:] = [one.session_id for one in brought]
    case.ids["count"] = brought[0].message_count
    return answers


async def imported(client: Client, case: Case) -> None:
    """The session is there, once and whole."""
    sessions = (await client.sessions.ListSessions()).sessions
    assert [one.id for one in sessions if one.id in (case["source"], case.session_id)] == [case.session_id]
    listed = await messages_of(client, case.session_id)
    assert len(listed) <= case["count"], (len(listed), case["count"])
    assert [words_of(one) for one in listed][:1] == [case["words"]]


async def compacted(client: Client, case: Case) -> None:
    """The message is there once, behind one summary."""
    await once(client, case)
    assert len([one for one in await messages_of(client, case.session_id) if one.HasField("compaction")]) == 1


async def until_titled(_client: Client, _case: Case) -> None:
    """Waits until nobody makes a title any more."""
    while any(task.get_name() == "session title" for task in asyncio.all_tasks()):
        await asyncio.sleep(0.002)


async def titled(client: Client, case: Case) -> None:
    """The message is there once, and its session has a title; if something failed it may have none: a model is asked
    once.
    """
    await once(client, case)
    assert case.disturbed_at or (await session_of(client, case.session_id)).title


async def create_upload(client: Client, case: Case) -> Any:
    """Begins an upload."""
    made = await client.uploads.CreateUpload(filename="a", request_id=case.request_id)
    case.ids["upload"] = made.upload
    return made


async def write_upload(client: Client, case: Case) -> Any:
    """Sends the last bytes of an upload."""
    return await client.uploads.WriteUpload(upload_id=case["upload"].upload_id, offset=4, data=b"more", last=True)


async def delete_upload(client: Client, case: Case) -> Any:
    """Removes an upload."""
    return await client.uploads.DeleteUpload(upload_id=case["upload"].upload_id)


def has_received(count: int) -> Step:
    """Returns the check that an upload has so many bytes."""

    async def check(client: Client, case: Case) -> None:
        request = GetUploadRequest(upload_id=case["upload"].upload_id)
        assert (await client.uploads.GetUpload(request)).upload.received_bytes == count

    return check


async def upload_is_gone(client: Client, case: Case) -> None:
    """There is no such upload."""
    assert await is_used(client, case["upload"])


SERVICES = {
    "message": "message.MessageService",
    "session": "session.SessionService",
    "turn": "turn.TurnService",
    "tool": "tool.ToolService",
    "permission": "tool.PermissionService",
    "question": "question.QuestionService",
    "upload": "file.UploadService",
    "transfer": "transfer.TransferService",
}


def _command(method: str, set_up: Step, act: Step, there: Step, **fields: Any) -> Command:
    service, name = method.split(".")
    return Command(f"{SERVICES[service]}.{name}", set_up, act, there, **fields)


MANY_STEPS = "\n/words 20\n/tool nothing {}\n/step\n/reason why\n/words 20\n/tool nothing {}\n/step\ndone"
COMPACTING = '[models."offline/echo"]\ncontext_window_tokens = 900\n[compaction]\nthreshold = 0.6\nkeep = 0.2\n'
TITLES = "[titles]\nenabled = true\nmodel = 'offline/echo'\n"
PERMISSION = "permission.RespondToPermission"
QUESTION = "question.AnswerQuestion"
SETTLED = "TOOL_CALL_ALREADY_SETTLED"
COLOUR = '{"colour":"red","coats":2}'

COMMANDS: dict[str, Command] = {
    "send to an idle session": _command("message.SendMessage", a_session, sending(), once),
    "send, and have many steps": _command("message.SendMessage", a_session, sending(MANY_STEPS), once),
    "send to a new session": _command("message.SendMessage", _nothing, send_to_a_new_session, is_the_only_new_one),
    "send, and have a title made": _command(
        "message.SendMessage", _nothing, send_to_a_new_session, titled, toml=TITLES, at_rest=until_titled
    ),
    "send, and have it compacted": _command(
        "message.SendMessage", a_long_conversation, sending(), compacted, toml=COMPACTING
    ),
    "send with an upload": _command("message.SendMessage", an_upload, send_with_an_upload, has_the_file),
    "send to an archived session": _command("message.SendMessage", an_archived_session, sending(), said_and_unarchived),
    "send and queue": _command("message.SendMessage", a_queue, sending(busy_policy=BUSY_POLICY_QUEUE), once),
    "send and steer": _command("message.SendMessage", a_queue, sending(busy_policy=BUSY_POLICY_STEER), once),
    "send and interrupt": _command("message.SendMessage", a_queue, sending(busy_policy=BUSY_POLICY_INTERRUPT), once),
    "send unless busy": _command("message.SendMessage", a_session, sending(busy_policy=BUSY_POLICY_REJECT), once),
    "stream a message": _command("message.StreamMessage", a_session, stream, once),
    "start a turn": _command("turn.StartTurn", a_stored_question, starting(BUSY_POLICY_QUEUE), once),
    "start a turn later": _command(
        "turn.StartTurn", a_stored_question_of_a_busy_session, starting(BUSY_POLICY_QUEUE), once
    ),
    "start a turn and interrupt": _command(
        "turn.StartTurn", a_stored_question_of_a_busy_session, starting(BUSY_POLICY_INTERRUPT), once
    ),
    "append a user message": _command(
        "message.AppendMessage", a_session, appending(MESSAGE_TYPE_USER, SAID), once_without_a_turn
    ),
    "append beside a turn": _command(
        "message.AppendMessage", a_queue, appending(MESSAGE_TYPE_USER, SAID), once_without_a_turn
    ),
    "append a host message": _command(
        "message.AppendMessage", a_session, appending(MESSAGE_TYPE_HOST, SAID), host_once
    ),
    "append an answer": _command("message.AppendMessage", a_stored_question, append_call, answer_once),
    "append a result": _command("message.AppendMessage", an_open_call, append_result, answer_once),
    "abort": _command("message.AbortSession", a_busy_session, aborting(), aborted, own=()),
    "abort with a queue": _command("message.AbortSession", a_queue, aborting(), aborted),
    "abort and keep the queue": _command(
        "message.AbortSession", a_queue, aborting(keep_queue=True), aborted_with_its_queue_kept, own=()
    ),
    "abort with a late turn": _command("message.AbortSession", a_late_turn, aborting(), late_is_back, own=()),
    "edit what waits": _command("turn.EditQueuedMessage", a_queue, editing(), edited),
    "edit to interrupt": _command(
        "turn.EditQueuedMessage", a_queue, editing(busy_policy=BUSY_POLICY_INTERRUPT), edited
    ),
    "move what waits": _command("turn.MoveQueuedMessage", a_queue, move, moved),
    "remove what waits": _command("turn.RemoveQueuedMessage", a_queue, removing("first"), removed),
    "remove a late turn": _command("turn.RemoveQueuedMessage", a_known_late_turn, removing("waiting"), late_is_back),
    "submit a result": _command("tool.SubmitToolResult", a_call, submit, submitted),
    "submit the result of a lease": _command("tool.SubmitToolResult", a_leased_call, submit, submitted),
    "submit with an upload": _command(
        "tool.SubmitToolResult", a_call_and_an_upload, submit_with_an_upload, submitted_with_its_file
    ),
    "claim a call": _command("tool.ClaimToolCall", a_call, claim_it, call_ended, late=SETTLED),
    "renew a lease": _command("tool.RenewToolCall", a_leased_call, renew_it, has_its_line, late=SETTLED),
    "release a lease": _command("tool.ReleaseToolCall", a_leased_call, release_it, call_ended),
    "allow once": _command(PERMISSION, a_permission, responding("once"), permitted(True)),
    "allow always": _command(PERMISSION, a_permission, responding("always"), permitted(True), lasts=True),
    "reject": _command(PERMISSION, a_permission, responding("reject"), permitted(False)),
    "accept a question": _command(
        QUESTION,
        a_question,
        answering(QUESTION_ACTION_ACCEPT, COLOUR),
        painted("the door is red, 2 times"),
        asks_people=True,
    ),
    "decline a question": _command(
        QUESTION, a_question, answering(QUESTION_ACTION_DECLINE), painted("not painted: decline"), asks_people=True
    ),
    "answer again": _command("turn.RegenerateMessage", a_conversation, regenerating(), answered_again),
    "answer again later": _command("turn.RegenerateMessage", a_busy_conversation, regenerating(), answered_again),
    "edit an old message": _command("turn.RegenerateMessage", a_conversation, regenerating(SAID), branched),
    "edit an old message later": _command("turn.RegenerateMessage", a_busy_conversation, regenerating(SAID), branched),
    "select another answer": _command("turn.SelectAlternative", two_answers, select, selected),
    "revert": _command("session.RevertSession", a_conversation, revert, has(2)),
    "clear": _command("session.ClearSession", a_conversation, clear, has(0)),
    "restore": _command("session.RestoreSession", a_cleared_conversation, restore, has(4)),
    "fork": _command("session.ForkSession", a_conversation, fork, forked),
    "create a session": _command("session.CreateSession", _nothing, create, created),
    "update settings": _command("session.UpdateSession", a_session, update, updated),
    "update the directory": _command(
        "session.UpdateSessionDirectory",
        a_session,
        update_directory,
        has_the_directory,
        toml='[files]\nroots = ["/tmp"]\n',
    ),
    "archive": _command("session.ArchiveSession", a_session, archive, archived(True)),
    "unarchive": _command("session.UnarchiveSession", an_archived_session, unarchive, archived(False)),
    "delete": _command(
        "session.DeleteSession", a_conversation, delete, deleted, repeated="SESSION_NOT_FOUND", removes=True
    ),
    "delete a busy session": _command(
        "session.DeleteSession",
        a_queue,
        delete,
        deleted,
        own=(1, 3),  # the messages that wait, the end of the turn, which is stored in any case, and the removal
        later=(3,),
        repeated="SESSION_NOT_FOUND",
        removes=True,
    ),
    "import": _command(
        "transfer.ImportSessions",
        an_archive,
        bring_archive,
        imported,
        own=tuple(range(1, 12)),  # the parts of the session, and the end of the upload
        later=(11,),
    ),
    "create an upload": _command("upload.CreateUpload", _nothing, create_upload, has_received(0)),
    "write an upload": _command(
        "upload.WriteUpload", a_begun_upload, write_upload, has_received(8), own=(1, 2), later=(2,)
    ),
    "delete an upload": _command(
        "upload.DeleteUpload", a_begun_upload, delete_upload, upload_is_gone, repeated="UPLOAD_NOT_FOUND"
    ),
}
"""All commands, by what a person calls them."""
