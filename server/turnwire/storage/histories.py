"""Conversations in memory: a step needs all of its session's messages, of which few are new."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from turnwire.domain.conversation.messages import Message, ToolUse
from turnwire.domain.errors import ConversationTooLarge
from turnwire.domain.text import memory_bytes
from turnwire.ports.commit import (
    AddSpending,
    Commit,
    MarkArchived,
    NoteFirstWords,
    OrderQueue,
    PutDraft,
    PutFile,
    PutMessage,
    PutPermission,
    PutQuestion,
    PutSession,
    PutTurn,
    RecordRequest,
    RemoveSession,
    RequireHead,
    RequireQueueRevision,
    UseUpload,
)

MAX_KEPT_BYTES = 128 * 2**20
"""For all sessions together: about 100,000 messages of 400 characters. A session that needs more alone is not kept."""

MAX_CONVERSATION_BYTES = 256 * 2**20
"""In memory, of one conversation that is read for a request to a model or for a copy: more than twice what the largest
context windows hold, also as many small messages. Lists are read in pages, and archives written message by message."""

IDLE_SECONDS = 600.0
"""How long a session is kept after its last use, until another one is used. Few people think longer between two
messages."""

BARE_BYTES = 800
"""What a message takes without its texts."""

_MAX_CHANGED = 500
"""Ids of changed messages that are noted; when more have changed, all are read again."""

NO_MESSAGE = (
    PutSession
    | NoteFirstWords
    | MarkArchived
    | PutTurn
    | OrderQueue
    | PutFile
    | UseUpload
    | RecordRequest
    | PutPermission
    | PutQuestion
    | AddSpending
    | RequireHead
    | RequireQueueRevision
)
"""Changes that leave the messages of a conversation as they are. What is not listed may change any of them."""


class History:
    """The conversation of one session as it was read last, and what has changed since.

    `lock` is held while it is read. Commits are noted meanwhile, so `changed` and `is_rewritten` may grow at any time.
    """

    def __init__(self) -> None:
        """Nothing was read yet."""
        self.tenant = ""
        """Whose session it is; "" until it was read."""
        self.lock = asyncio.Lock()
        self.users = 0
        self.used_at = 0.0
        self.messages: list[Message] = []
        self._places: list[int] = []
        self._index: dict[str, int] = {}
        self.changed: dict[str, None] = {}
        """Ids of messages that were stored since they were read."""
        self.is_rewritten = True
        """Whether more than that may have changed."""
        self.size_bytes = 0
        self.counted_bytes = 0
        """What of `size_bytes` the cache has counted."""

    def note(self, commit: Commit) -> None:
        """Notes what a commit has changed."""
        for change in commit.changes:
            if isinstance(change, PutMessage) and not (change.at_end or change.is_hidden or change.branch is not None):
                self.changed[change.message.message_id] = None
            elif isinstance(change, PutDraft):
                self.changed[change.draft.message.message_id] = None
            elif not isinstance(change, NO_MESSAGE):
                self.is_rewritten = True
        if len(self.changed) > _MAX_CHANGED:
            self.changed.clear()
            self.is_rewritten = True

    def begin(self, tenant: str, placed: Sequence[tuple[Message, int]]) -> None:
        """Takes all messages of the conversation with their places, in order."""
        self.tenant = tenant
        self.messages = [message for message, _ in placed]
        self._places = [place for _, place in placed]
        self._index = {message.message_id: at for at, message in enumerate(self.messages)}
        self.size_bytes = sum(map(message_bytes, self.messages))

    def take(self, message_ids: Sequence[str], placed: Sequence[tuple[Message, int]]) -> None:
        """Takes what was stored since: those of the named messages that are part of the conversation, in order.

        Anything but changed messages at their old places, and new ones at the end, needs all to be read again.
        """
        found = {message.message_id for message, _ in placed}
        if any(message_id in self._index and message_id not in found for message_id in message_ids):
            self.is_rewritten = True
        for message, place in placed:
            at = self._index.get(message.message_id)
            if at is None and (not self._places or place > self._places[-1]):
                self._index[message.message_id] = len(self.messages)
                self.messages.append(message)
                self._places.append(place)
                self.size_bytes += message_bytes(message)
            elif at is not None and self._places[at] == place:
                self.size_bytes += message_bytes(message) - message_bytes(self.messages[at])
                self.messages[at] = message
            else:
                self.is_rewritten = True


class HistoryCache:
    """The conversations that were read last, by session. Used on the event loop only."""

    def __init__(self, max_bytes: int = MAX_KEPT_BYTES) -> None:
        """Takes how much memory they may have."""
        self._max_bytes = max_bytes
        self._histories: OrderedDict[str, History] = OrderedDict()
        self._size_bytes = 0

    def use(self, session_id: str) -> History:
        """Returns the history of a session; commits are noted in it from now on. Call `release` afterwards."""
        history = self._histories.setdefault(session_id, History())
        self._histories.move_to_end(session_id)
        history.users += 1
        return history

    def get(self, tenant: str, session_id: str) -> History | None:
        """Returns the history of a tenant's session if it was read, and all that has changed since is noted by id."""
        history = self._histories.get(session_id)
        if history is None or history.tenant != tenant or history.is_rewritten or history.lock.locked():
            return None
        return history

    def release(self, session_id: str, history: History) -> None:
        """Ends a use, and drops histories until the others fit and are in use: first what was used longest ago."""
        history.users -= 1
        if not history.tenant and not history.users:  # there is no such session
            if self._histories.pop(session_id, None) is not None:
                self._size_bytes -= history.counted_bytes
            return
        history.used_at = now = time.monotonic()
        self._size_bytes += history.size_bytes - history.counted_bytes
        history.counted_bytes = history.size_bytes
        for _ in range(len(self._histories)):
            oldest_id, oldest = next(iter(self._histories.items()))
            if self._size_bytes <= self._max_bytes and (oldest.users or oldest.used_at >= now - IDLE_SECONDS):
                return
            if oldest.users:
                self._histories.move_to_end(oldest_id)
            else:
                del self._histories[oldest_id]
                self._size_bytes -= oldest.counted_bytes

    def clear(self) -> None:
        """Drops what nobody uses."""
        for session_id, history in [(name, one) for name, one in self._histories.items() if not one.users]:
            self._forget(session_id, history)

    def note_changed(self, commits: Iterable[Commit]) -> None:
        """Notes what these commits have changed; called when they are durable, before their callers know."""
        for commit in commits:
            history = self._histories.get(commit.session_id)
            if history is None:
                continue
            history.note(commit)
            if any(isinstance(change, RemoveSession) for change in commit.changes):
                self._forget(commit.session_id, history)

    def _forget(self, session_id: str, history: History) -> None:
        """Drops the history of a session that was removed, at once or with its last use."""
        history.tenant = ""
        if not history.users:
            del self._histories[session_id]
            self._size_bytes -= history.counted_bytes


def message_bytes(message: Message) -> int:
    """Returns about how much memory a message takes."""
    size = BARE_BYTES
    for part in message.parts:
        call = part.content if isinstance(part.content, ToolUse) else None
        texts = (call.input_json, call.output, call.error) if call else (getattr(part.content, "text", ""),)
        size += sum(map(memory_bytes, (*texts, part.provider_state)))
    return size


def check_conversation(size_bytes: int) -> None:
    """Raises ConversationTooLarge when a conversation of so many bytes is not to be read."""
    if size_bytes > MAX_CONVERSATION_BYTES:
        raise ConversationTooLarge(size_bytes, MAX_CONVERSATION_BYTES)
