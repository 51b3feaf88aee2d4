"""One session of a test's world: what its model will answer, and what a client that watches it holds."""

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from opencode.message.content_pb2 import MESSAGE_STATUS_COMPLETE, MESSAGE_STATUS_STREAMING, SessionMessage
from opencode.message.message_pb2 import SendMessageRequest, SendMessageResponse
from opencode.tool.tool_pb2 import ToolCallState
from tests.support.models.odd_answers import Hold, Reply
from tests.support.oracles.fold import SessionFold, comparable

SETTLED = ("success", "error", "cancelled")


@dataclass
class Followed:
    """One session, what a client that watches it holds, and what its model will answer."""

    tag: str
    """In every message of its users, so that a request tells its session."""
    session_id: str
    script: deque[Reply] = field(default_factory=deque)
    given: list[Reply] = field(default_factory=list)
    """What its model answered so far."""
    hold: Hold | None = None
    """What holds the session's answer back now."""
    cuts: int = 0
    """How often answers that were on their way were cut off."""
    fold: SessionFold = field(init=False)
    watching: asyncio.Task[None] | None = None
    token: str = ""
    """The newest resume token of the watch."""
    resumes: bool = False
    """The watch went on from the token of the one before it."""
    paused: bool = False
    """The newest answer was paused by its provider."""
    open_call: str = ""
    """The hosted tool's call that the newest answer left without its result."""
    events: dict[int, bytes] = field(default_factory=dict)
    """The facts of durable events that were delivered, by sequence: no restart may change them."""
    named: list[tuple[SendMessageRequest, SendMessageResponse]] = field(default_factory=list)

    def cut_off(self) -> None:
        """Forgets the answer that is on its way: its turn is ended, or the server is."""
        self.cuts += 1
        self.hold = None

    def mark(self, words: str) -> str:
        """Returns words that name the session."""
        return f"{words} (in {self.tag})"

    def calls(self) -> list[ToolCallState]:
        """Returns all calls."""
        return [state for message in self.fold.messages.values() for state in _calls(message)]

    def waiting_calls(self) -> list[ToolCallState]:
        """Returns the calls that wait for a client or a person."""
        ended = (message for message in self.fold.messages.values() if message.status == MESSAGE_STATUS_COMPLETE)
        return [state for message in ended for state in _calls(message) if state.status not in SETTLED]

    def open_calls(self) -> list[ToolCallState]:
        """Returns the calls whose result a client may submit."""
        return [state for state in self.waiting_calls() if not state.permission_id]


def _calls(message: SessionMessage) -> list[ToolCallState]:
    return [part.tool_use for part in message.parts if part.HasField("tool_use")]


def told(messages: Iterable[SessionMessage]) -> list[SessionMessage]:
    """Returns copies with what watchers are told: who answers, and for how much, only when the answer has ended."""
    copies = comparable(messages)
    for message in copies:
        if message.status == MESSAGE_STATUS_STREAMING:
            message.ClearField("usage")
            message.ClearField("model_run")
    return copies
