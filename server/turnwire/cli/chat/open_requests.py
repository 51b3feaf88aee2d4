"""What waits for the person at the prompt: which request is asked, and what is typed to answer it."""

import uuid
from collections.abc import Awaitable, Callable
from functools import partial

import grpc
from rich.console import RenderableType

from opencode.event.session_event_pb2 import SessionEvent
from opencode.question.question_pb2 import Question
from opencode.tool.tool_pb2 import PermissionRequest
from turnwire.cli.chat.asking.answers import parse_answer
from turnwire.cli.chat.asking.filling import COMMANDS, Filling, Reply
from turnwire.cli.chat.commands import parse_call
from turnwire.cli.chat.server_calls import ServerCalls
from turnwire.cli.chat.session_state import SessionState
from turnwire.cli.chat.terminal import Terminal
from turnwire.cli.chat.view import drawings
from turnwire.cli.connection import describe

Action = Callable[[], Awaitable[None]]
"""What the room carries out, in order."""


class OpenRequests:
    """Asks what is open in a session, oldest first.

    While a question of a tool is asked, the draft that was in the prompt is put aside, and what is typed for the tool
    goes when the question does: neither is ever taken for the other.
    """

    def __init__(
        self, calls: ServerCalls, terminal: Terminal, show: Callable[..., None], act: Callable[[Action], None]
    ) -> None:
        """Args:
        calls: The server.
        terminal: Where answers are typed.
        show: Draws what it is given, at once.
        act: Carries out what was answered.
        """
        self._calls = calls
        self._terminal = terminal
        self._show = show
        self._act = act
        self._filling: Filling | None = None
        """The question that is asked; None when it is a permission request, or nothing is open."""
        self._draft = ""
        self._sent: tuple[Reply, str] | None = None
        """The newest answer to the question and its name, under which the same answer is sent again."""

    def update(self, state: SessionState) -> list[RenderableType]:
        """Asks the oldest request from now on. Draws it when it is a question of a tool that was not asked yet."""
        first = next(iter(state.requests.values()), None)
        before = self._filling
        if before is not None and isinstance(first, Question) and first.question_id == before.question.question_id:
            return []
        if before is not None:
            self._filling = None
            self._terminal.clear_line()
        if isinstance(first, Question):
            if before is None:
                self._draft = self._terminal.take_away()
            self._filling, self._sent = Filling(first), None
            return drawings.asked(first)
        if before is not None:
            self._terminal.give_back(self._draft)
        return []

    def take(self, state: SessionState, text: str) -> bool:
        """Takes what was typed for the request that is asked; returns whether it was."""
        call = parse_call(text)
        if self._filling is not None:
            if call is not None and call.name not in COMMANDS:
                return False
            self._fill(self._filling, text)
            return True
        request = next(iter(state.requests.values()), None)
        if not isinstance(request, PermissionRequest) or call is not None or not text.strip():
            return False
        answer = parse_answer(text)
        if text.strip() == "?":
            self._show(*drawings.whole_request(request))
        elif answer is None:
            self._show(
                drawings.note("Answer the question first: y, a, or n and why. Ctrl-U empties the line.", "yellow")
            )
            return True
        else:
            self._act(partial(self._calls.answer, request, answer))
        self._terminal.clear_line()
        return True

    def closed(self, state: SessionState, event: SessionEvent) -> list[RenderableType]:
        """Draws how an event closes a request that is open until then; [] when it closes none."""
        match event.WhichOneof("kind"):
            case "permission_replied":
                replied = event.permission_replied
                permission = state.requests.get(replied.permission_id)
                if isinstance(permission, PermissionRequest):
                    return [drawings.permission_closed(permission.title, replied.response, replied.reason)]
            case "question_answered":
                answered = event.question_answered
                question = state.requests.get(answered.question_id)
                if isinstance(question, Question):
                    return [drawings.question_closed(question, answered.action, answered.reason)]
        return []

    def live(self, state: SessionState) -> list[RenderableType]:
        """Draws the request that is asked; [] when none is open."""
        if self._filling is not None:
            return drawings.filling(self._filling, len(state.requests))
        first = next(iter(state.requests.values()), None)
        return drawings.permission(first, len(state.requests)) if isinstance(first, PermissionRequest) else []

    def _fill(self, filling: Filling, text: str) -> None:
        if filling.is_sending:
            return
        self._terminal.clear_line()
        if text.strip() == "?":
            self._show(*drawings.asked(filling.question))
            field = filling.field
            self._show(*(drawings.filled(filling) if field is None else drawings.whole_field(field)))
            return
        reply = filling.take(text)
        if reply is not None:
            if self._sent is None or self._sent[0] != reply:
                self._sent = reply, str(uuid.uuid4())
            self._act(partial(self._send, filling, *self._sent))
        self._show()

    async def _send(self, filling: Filling, reply: Reply, request_id: str) -> None:
        """Sends an answer. A refusal is told at the question, which is asked on."""
        try:
            await self._calls.answer_question(filling.question, reply, request_id)
        except grpc.aio.AioRpcError as error:
            filling.refuse(describe(error))
            if filling is not self._filling:  # it was closed meanwhile, and says nothing any more
                raise
            self._show()
        except BaseException:
            filling.refuse("[given up]")
            raise
