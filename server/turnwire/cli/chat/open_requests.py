"""What waits for the person at the prompt: which request is asked, and what is typed to answer it."""

from collections.abc import Awaitable, Callable
from functools import partial

from rich.console import RenderableType

from opencode.event.session_event_pb2 import SessionEvent
from opencode.tool.tool_pb2 import PermissionRequest
from turnwire.cli.chat.asking.answers import parse_answer
from turnwire.cli.chat.server_calls import ServerCalls
from turnwire.cli.chat.session_state import SessionState
from turnwire.cli.chat.terminal import Terminal
from turnwire.cli.chat.view import drawings

Action = Callable[[], Awaitable[None]]
"""What the room carries out, in order."""


class OpenRequests:
    """Asks what is open in a session, oldest first."""

    def __init__(
        self,
        calls: ServerCalls,
        terminal: Terminal,
        show: Callable[..., None],
        act: Callable[[Action], None],
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

    def take(self, state: SessionState, text: str) -> bool:
        """Takes what was typed while a request is open; returns whether there is one."""
        if not state.permissions:
            return False
        request = next(iter(state.permissions.values()))
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
        if event.WhichOneof("kind") != "permission_replied":
            return []
        replied = event.permission_replied
        asked: PermissionRequest | None = state.permissions.get(replied.permission_id)
        return [] if asked is None else [drawings.answered(asked.title, replied.response, replied.reason)]

    def live(self, state: SessionState) -> list[RenderableType]:
        """Draws the request that is asked; [] when none is open."""
        open_requests = list(state.permissions.values())
        return drawings.question(open_requests[0], len(open_requests)) if open_requests else []
