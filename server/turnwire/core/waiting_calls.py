"""What waits for people, clients and tools: how many questions and permission requests are open, so that nothing floods
a person, a session or a tenant, and how much memory the answers take whose tool calls wait.
"""

import sys
from collections import Counter

from turnwire.domain.conversation.messages import Message, Part, ToolUse
from turnwire.domain.conversation.texts import texts_of
from turnwire.domain.errors import MemoryShort

MAX_OPEN_OF_CALL = 8
"""Open questions of one call. More than one form at a time is rare, and nobody can look at many."""

MAX_OPEN_OF_SESSION = 32
"""Open questions of one session, which runs few calls at a time."""

MAX_OPEN_OF_TENANT = 256
"""Open questions of one tenant: as many as people can be expected to answer before they expire."""

MAX_PERMISSIONS_OF_TENANT = 1000
"""Open permission requests of one tenant. Watches of all sessions begin with all of them, each with up
to 64 KiB of arguments."""

LIMIT = "limits.max_waiting_calls_bytes"
"""The name of the limit."""

ALWAYS_BYTES = 32 * 1024
"""Of an answer that is not counted: a turn that waits takes about as much by itself."""

CALL_BYTES = 4096
"""What a call takes besides its texts, with its permission request and the task that runs it."""

QUESTION_BYTES = 32 * 1024
"""What a question of a call takes at most besides the state of its tool; counted until the step of its call ends."""

REPEATED_BYTES = 64 * 1024
"""Of the arguments of a call: a permission request repeats them up to about this size."""


class OpenQuestions:
    """Counts the open questions of the turns that run here. Used on the event loop only."""

    def __init__(self) -> None:
        """Counts from nothing."""
        self._sessions: Counter[tuple[str, str]] = Counter()
        self._tenants: Counter[str] = Counter()

    def problem(self, tenant: str, session_id: str, more: int) -> str:
        """Returns why so many more may not be opened; "" when they may."""
        if self._sessions[tenant, session_id] + more > MAX_OPEN_OF_SESSION:
            return f"{MAX_OPEN_OF_SESSION} questions of the session are open"
        if self._tenants[tenant] + more > MAX_OPEN_OF_TENANT:
            return f"{MAX_OPEN_OF_TENANT} questions of the tenant are open"
        return ""

    def change(self, tenant: str, session_id: str, by: int) -> None:
        """Counts questions that were opened, or closed when `by` is negative."""
        self._sessions[tenant, session_id] += by
        self._tenants[tenant] += by
        if not self._sessions[tenant, session_id]:
            del self._sessions[tenant, session_id]
        if not self._tenants[tenant]:
            del self._tenants[tenant]


class OpenPermissions:
    """Counts the permission requests of the turns that run here, answered ones until their step has ended.

    Used on the event loop only.
    """

    def __init__(self) -> None:
        """Counts from nothing."""
        self._turns: dict[str, tuple[str, int]] = {}
        self._tenants: Counter[str] = Counter()

    def take(self, tenant: str, turn_id: str, wanted: int) -> int:
        """Counts requests of a step of a turn, in place of those of the step before. Returns how many it may have."""
        self.forget(turn_id)
        most = min(wanted, MAX_PERMISSIONS_OF_TENANT - self._tenants[tenant])
        if most > 0:
            self._turns[turn_id] = tenant, most
            self._tenants[tenant] += most
        return max(most, 0)

    def forget(self, turn_id: str) -> None:
        """Forgets the requests of a turn."""
        tenant, count = self._turns.pop(turn_id, ("", 0))
        self._tenants[tenant] -= count
        if not self._tenants[tenant]:
            del self._tenants[tenant]


class WaitingCalls:
    """Counts the answers of the turns that run here, by turn. Used on the event loop only.

    `_turns` has the tenant of each turn and the bytes of its answer, those of small ones too.
    """

    def __init__(self, max_bytes: int) -> None:
        """Takes what all may have together; a tenant has half of it at most."""
        self.max_bytes = max_bytes
        self.bytes = 0
        """Of all that are counted."""
        self._turns: dict[str, tuple[str, int]] = {}
        self._tenants: Counter[str] = Counter()

    def hold(self, tenant: str, turn_id: str, answer: Message) -> bool:
        """Counts the answer of a turn, in place of the one before. Returns False when there is no room for it."""
        self.forget(turn_id)
        self._turns[turn_id] = tenant, 0
        return self.grow(turn_id, sum(map(held_bytes, answer.parts)))

    def grow(self, turn_id: str, by: int) -> bool:
        """Counts what came for a turn's answer, or went from it. Returns False, and counts nothing, without room."""
        if turn_id not in self._turns:  # it has ended
            return True
        tenant, before = self._turns[turn_id]
        size = before + by
        more = _counted(size) - _counted(before)
        if more > 0 and not self._has_room(tenant, more):
            return False
        self._turns[turn_id] = tenant, size
        self._add(tenant, more)
        return True

    def forget(self, turn_id: str) -> None:
        """Forgets the answer of a turn. Idempotent."""
        tenant, size = self._turns.pop(turn_id, ("", 0))
        self._add(tenant, -_counted(size))

    def full(self) -> MemoryShort:
        """Returns the error for what finds no room."""
        text = f"too much waits in memory for the results of tool calls: {LIMIT} is {self.max_bytes}"
        return MemoryShort.of(LIMIT, self.max_bytes, text)

    def _has_room(self, tenant: str, more: int) -> bool:
        is_within_share = self._tenants[tenant] + more <= self.max_bytes // 2
        return is_within_share and self.bytes + more <= self.max_bytes

    def _add(self, tenant: str, more: int) -> None:
        self.bytes += more
        self._tenants[tenant] += more
        if not self._tenants[tenant]:
            del self._tenants[tenant]


def held_bytes(part: Part) -> int:
    """Returns about how much memory a part takes while its message waits."""
    call, state = part.content, sys.getsizeof(part.provider_state)
    if not isinstance(call, ToolUse):
        return state + sum(map(sys.getsizeof, texts_of(part)))
    arguments = sys.getsizeof(call.input_json)
    return CALL_BYTES + state + arguments + min(arguments, REPEATED_BYTES) + result_bytes(call)


def result_bytes(call: ToolUse) -> int:
    """Returns about how much memory the result and the log of a call take."""
    return sum(map(sys.getsizeof, (call.output, call.error, call.metadata_json, *call.logs)))


def _counted(size: int) -> int:
    return size if size > ALWAYS_BYTES else 0
