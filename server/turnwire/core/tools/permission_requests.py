"""Permission requests: decides which tool calls need one, and opens, answers and closes them."""

import glob
from collections.abc import Iterable
from datetime import datetime

import msgspec
from msgspec import Struct

from turnwire.core.actor import Decision, Now
from turnwire.core.environment import Environment
from turnwire.core.tools.open_calls import OpenCalls
from turnwire.core.tools.results import CallResult
from turnwire.domain.conversation.events import PermissionAsked, PermissionReplied
from turnwire.domain.conversation.messages import Message, Part, ToolUse
from turnwire.domain.conversation.permissions import (
    PermissionAction,
    PermissionAnswer,
    PermissionChoice,
    PermissionRequest,
    matches_glob,
)
from turnwire.domain.conversation.turns import Turn
from turnwire.domain.errors import PermissionAlreadyAnswered
from turnwire.ports.commit import NewEvent, PutPermission, Work

MAX_TITLE_CHARS = 200
"""Maximum length of a title: one line in a dialog. The metadata has the complete arguments."""

MAX_PERMISSIONS_OF_TENANT = 1000
"""Maximum open permission requests of one tenant. Watches of all sessions begin with all of them, each with up to 64
KiB of arguments. Steps that end at the same moment do not count each other's, so they may exceed it."""

MAX_ARGUMENTS_CHARS = 16 * 1024
"""Maximum length of the arguments that a request repeats: at most 64 KiB of UTF-8. Longer arguments are in the call
only."""


async def ask_permissions(
    environment: Environment, turn: Turn, message: Message
) -> tuple[Message, tuple[PermissionRequest, ...], dict[int, ToolUse]]:
    """Creates permission requests for the calls of a message that a person must allow, if there is memory to wait.

    Args:
        environment: Ports and settings.
        turn: The turn; its agent decides which rules apply.
        message: The answer, before it is closed; calls that cannot run already have a result.

    Returns:
        The message with the request ids in its calls, the requests in the order of the calls, and by part index the
        calls beyond a limit, with an error result.
    """
    settings = environment.settings
    open_calls = [(part, call) for part, call in message.tool_calls() if not call.status.settled]
    if not environment.waiting_calls.hold(turn.tenant, turn.turn_id, message):
        return message, (), _refused(open_calls, environment.waiting_calls.full().message, environment.clock())
    asking = [
        (part, call) for part, call in open_calls if settings.permission(turn.agent, call.name) is PermissionAction.ASK
    ]
    if not asking:
        return message, (), {}
    allowed = await environment.store.of(turn.tenant).always_allowed(turn.session_id)
    waiting = [(part, call) for part, call in asking if not matches_glob(allowed, call.name)]
    of_answer, now = settings.limits.max_open_permissions, environment.clock()
    of_tenant = max(MAX_PERMISSIONS_OF_TENANT - environment.permissions[turn.tenant], 0)
    most = min(of_answer, of_tenant)
    why = f"{of_answer} calls of the answer wait for permission"
    if most < of_answer:
        why = f"{MAX_PERMISSIONS_OF_TENANT} calls of the tenant wait for permission"
    beyond = _refused(waiting[most:], why, now)
    permissions = tuple(_request(environment, turn, message, part, call) for part, call in waiting[:most])
    by_index = {permission.part_index: permission.permission_id for permission in permissions}
    parts = tuple(_with_permission(part, by_index.get(part.index, "")) for part in message.parts)
    return msgspec.structs.replace(message, parts=parts), permissions, beyond


def _refused(calls: Iterable[tuple[Part, ToolUse]], why: str, now: datetime) -> dict[int, ToolUse]:
    refused = CallResult(output=f"the call was not run: {why}", is_error=True)
    return {part.index: refused.apply_to(call, now) for part, call in calls}


def opening_work(permissions: Iterable[PermissionRequest]) -> Work:
    """Returns the work that opens requests."""
    opened = tuple(permissions)
    return Work(
        tuple(PutPermission(permission) for permission in opened),
        tuple(NewEvent(PermissionAsked(permission), permission.turn_id) for permission in opened),
    )


def closing_work(permissions: Iterable[PermissionRequest], answer: PermissionAnswer) -> Work:
    """Returns the work that closes open requests with an answer."""
    closed = tuple(permission.closed(answer) for permission in permissions)
    return Work(
        tuple(PutPermission(permission) for permission in closed),
        tuple(NewEvent(PermissionReplied(p.permission_id, p.tool_call_id, answer), p.turn_id) for p in closed),
    )


def refusal(answer: PermissionAnswer) -> str:
    """Returns the result that the model reads for a rejected call."""
    return "The user did not allow this call." + (f" The user said: {answer.reason}" if answer.reason.strip() else "")


def denial(tool: str) -> str:
    """Returns the result that the model reads for a call of a denied tool."""
    return f"the tool {tool!r} is not permitted"


def answered_otherwise(request: PermissionRequest) -> PermissionAlreadyAnswered:
    """Returns the error for a second answer that differs from the first."""
    choice = request.answer.response if request.answer is not None else PermissionChoice.CANCELLED
    return PermissionAlreadyAnswered(
        f"permission request {request.permission_id!r} was answered: {choice.value}", request.permission_id
    )


class AnswerPermission(Struct, frozen=True):
    """The answer to a request. "Always" also answers the other open requests that its patterns match."""

    permission_id: str
    answer: PermissionAnswer

    def decide(self, calls: OpenCalls, now: Now) -> Decision[OpenCalls]:
        """Returns the calls with the answer. Repeating the same answer changes nothing.

        Raises PermissionAlreadyAnswered: it has another answer.
        """
        request, answer = calls.permissions[self.permission_id], self.answer
        if request.answer is not None:
            if request.answer.response is not answer.response:
                raise answered_otherwise(request)
            return Decision(calls)
        requests = [request]
        if answer.response is PermissionChoice.ALWAYS:
            requests = [other for other in calls.open_permissions if matches_glob(request.patterns, other.tool)]
        refused = CallResult(output=refusal(answer), is_error=True)
        changed = dict[int, ToolUse]()
        for one in requests:
            call = calls.call(one.part_index)
            allowed = msgspec.structs.replace(call, permission_id="", started_at=now.at)
            changed[one.part_index] = allowed if answer.response.allows else refused.apply_to(call, now.at)
        answered = {one.permission_id: one.closed(answer) for one in requests}
        calls = msgspec.structs.replace(calls, permissions={**calls.permissions, **answered})
        return calls.with_calls(changed, now, closing_work(requests, answer))


def _request(environment: Environment, turn: Turn, message: Message, part: Part, call: ToolUse) -> PermissionRequest:
    now: datetime = environment.clock()
    arguments = call.input_json if len(call.input_json) <= MAX_ARGUMENTS_CHARS else ""
    title = " ".join(f"{call.name} {call.input_json[:MAX_TITLE_CHARS]}".split())
    return PermissionRequest(
        permission_id=environment.new_id("per"),
        session_id=turn.session_id,
        turn_id=turn.turn_id,
        message_id=message.message_id,
        part_index=part.index,
        tool_call_id=part.part_id,
        tool=call.name,
        patterns=(glob.escape(call.name),),  # a tool may be named "*"; the permission is for that tool alone
        title=title if len(title) <= MAX_TITLE_CHARS else f"{title[: MAX_TITLE_CHARS - 1]}…",
        created_at=now,
        call_id=call.call_id,
        # already checked: the arguments are a JSON object
        metadata_json=f'{{"arguments":{arguments}}}' if arguments else "",
    )


def _with_permission(part: Part, permission_id: str) -> Part:
    if not permission_id or not isinstance(part.content, ToolUse):
        return part
    return msgspec.structs.replace(part, content=msgspec.structs.replace(part.content, permission_id=permission_id))
