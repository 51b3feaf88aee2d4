"""Memory budgets of waiting work: large messages that are read again, answers with open tool calls, sent prompts.

A prompt reserves its memory before its conversation is read, and keeps it until its provider has read the prompt. While
it waits for a reservation, nothing of the conversation is in memory.
"""

import asyncio
import contextlib
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from turnwire.domain.conversation.messages import Message, Part, ToolUse, texts_of
from turnwire.domain.errors import ConversationTooLarge, MemoryShort, TooManyTurns
from turnwire.domain.fair_semaphore import FairSemaphore, Permit
from turnwire.domain.text import WIDEST_BYTES
from turnwire.ports.store import TenantStore

MAX_READ_BYTES = 64 * 2**20
"""Maximum memory of pending messages, with the tools and system prompts of their turns, and of questions to be
answered: from before they are read until their start or a change of them is stored. The turns of hundreds of sessions
may end at once, or wait at a start on a full disk."""

PATIENCE_SECONDS = 10.0
"""Time that a request waits for memory to read a message. On a full disk, memory may be held for long."""


class ReadBudget(FairSemaphore):
    """The budget of all sessions. A size above the total acquires the total."""

    def __init__(self) -> None:
        """Starts empty."""
        super().__init__(MAX_READ_BYTES)

    async def acquire_soon(self, tenant: str, size: int) -> None:
        """Acquires memory while a caller waits. Raises TooManyTurns: it was not available in time."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self.acquire(tenant, size)
        except TimeoutError:
            text = "too many messages are being read to be answered or changed"
            raise TooManyTurns.of("MAX_READ_BYTES", self.limit, text) from None

    @contextlib.asynccontextmanager
    async def for_question(
        self, store: TenantStore, tenant: str, session_id: str, message_id: str
    ) -> AsyncIterator[None]:
        """Holds memory for a message that is to be answered, and for what is read with it.

        Raises SessionNotFound, StorageError and TooManyTurns.
        """
        async with self.to_read(tenant, await store.question_bytes(session_id, message_id)):
            yield

    @contextlib.asynccontextmanager
    async def to_read(self, tenant: str, stored_bytes: int) -> AsyncIterator[None]:
        """Acquires memory for texts of `stored_bytes`; waits as `acquire_soon` does, and not at all for 0."""
        size = min(WIDEST_BYTES * stored_bytes, self.limit)
        if size:
            await self.acquire_soon(tenant, size)
        try:
            yield
        finally:
            self.release(tenant, size)


CALLS_LIMIT = "limits.max_waiting_calls_bytes"
"""Name of the limit."""

UNCOUNTED_ANSWER_BYTES = 32 * 1024
"""Size up to which an answer is not counted: a waiting turn takes about as much anyway."""

CALL_BYTES = 4096
"""Memory charged per call besides its texts: for its permission request and the task that runs it."""

QUESTION_BYTES = 32 * 1024
"""Maximum memory of a question besides the state of its tool; counted until the step of its call ends."""

REPEATED_BYTES = 64 * 1024
"""Size of a call's arguments up to which a permission request repeats them."""


class WaitingCalls:
    """Counts the answers of the turns that run in this process, by turn. Used on the event loop only.

    `_turns` has the tenant of each turn and the bytes of its answer, also of small ones that do not count.
    """

    def __init__(self, max_bytes: int) -> None:
        """Takes the limit of all tenants together; one tenant may have half of it."""
        self.max_bytes = max_bytes
        self.bytes = 0
        """Memory of all counted answers."""
        self._turns: dict[str, tuple[str, int]] = {}
        self._tenants: Counter[str] = Counter()

    def hold(self, tenant: str, turn_id: str, answer: Message) -> bool:
        """Counts the answer of a turn, in place of the previous one. Returns False when it does not fit."""
        self.forget(turn_id)
        self._turns[turn_id] = tenant, 0
        return self.grow(turn_id, sum(map(held_bytes, answer.parts)))

    def grow(self, turn_id: str, by: int) -> bool:
        """Counts growth of a turn's answer, or its reverse. Returns False, and counts nothing, when it does not fit."""
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
        """Returns the error for an answer that does not fit."""
        text = f"too many answers in memory wait for the results of tool calls: {CALLS_LIMIT} is {self.max_bytes}"
        return MemoryShort.of(CALLS_LIMIT, self.max_bytes, text)

    def _has_room(self, tenant: str, more: int) -> bool:
        is_within_share = self._tenants[tenant] + more <= self.max_bytes // 2
        return is_within_share and self.bytes + more <= self.max_bytes

    def _add(self, tenant: str, more: int) -> None:
        self.bytes += more
        self._tenants[tenant] += more
        if not self._tenants[tenant]:
            del self._tenants[tenant]


def held_bytes(part: Part) -> int:
    """Returns the approximate memory of a part while its message waits, in bytes."""
    call, state = part.content, sys.getsizeof(part.provider_state)
    if not isinstance(call, ToolUse):
        return state + sum(map(sys.getsizeof, texts_of(part)))
    arguments = sys.getsizeof(call.input_json)
    return CALL_BYTES + state + arguments + min(arguments, REPEATED_BYTES) + result_bytes(call)


def result_bytes(call: ToolUse) -> int:
    """Returns the approximate memory of the result and the log of a call, in bytes."""
    return sum(map(sys.getsizeof, (call.output, call.error, call.metadata_json, *call.logs)))


def _counted(size: int) -> int:
    return size if size > UNCOUNTED_ANSWER_BYTES else 0


PROMPTS_LIMIT = "limits.max_prompts_bytes"
"""Name of the limit."""

UNCOUNTED_PROMPT_BYTES = 2**19
"""Size up to which a prompt needs no reservation; nearly all are smaller. Those of all running turns take up to 128
MiB."""


class PromptPlace:
    """The memory reservation of one turn's prompt. Used by the turn's task."""

    def __init__(self, prompts: FairSemaphore, tenant: str) -> None:
        """Takes the budget of all prompts, and the tenant of the turn; reserves nothing yet."""
        self._permit = Permit(prompts, tenant)
        self._slot: Permit | None = None

    @contextmanager
    def beside(self, slot: Permit) -> Iterator[None]:
        """Releases this slot of the model calls while waiting for a reservation, and the reservation at the end."""
        self._slot = slot
        try:
            yield
        finally:
            self._slot = None
            self.leave()

    @property
    def max_bytes(self) -> int:
        """Size of the largest reservation."""
        return self._permit.budget.limit

    async def take(self, size: int) -> None:
        """Releases the reservation, and returns with one of this size; at once when none is needed. Safe to cancel.

        Raises:
            ConversationTooLarge: the size is above the memory of all prompts.
        """
        self.leave()
        if size > self.max_bytes:
            raise ConversationTooLarge(size, self.max_bytes, PROMPTS_LIMIT)
        if self.fits(size):
            return
        if self._slot is not None:
            self._slot.release()  # so that waiting prompts do not block smaller ones
        await self._permit.acquire(size)
        if self._slot is not None:
            await self._slot.acquire(1)

    def fits(self, size: int) -> bool:
        """Extends the reservation to `size` if it is smaller. Returns False if that memory is not available now."""
        return size <= max(self._permit.size, UNCOUNTED_PROMPT_BYTES) or self._permit.try_grow(size)

    def shrink(self, size: int) -> None:
        """Shrinks the reservation to `size` if it is larger."""
        self._permit.shrink(size if size > UNCOUNTED_PROMPT_BYTES else 0)

    def leave(self) -> None:
        """Releases the reservation. Idempotent."""
        self._permit.release()
