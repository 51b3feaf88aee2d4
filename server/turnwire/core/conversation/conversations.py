"""The conversations of recently used sessions, in memory.

A conversation is read once. From then on each commit of its session is applied to it as soon as it is durable, so it is
always equal to what is stored. It is dropped by a commit that may change more than single messages, such as a rewind or
the choice of another branch, and when others need its memory.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import msgspec

from turnwire.core.conversation.assembly import Assembly
from turnwire.domain.conversation.events import MessageAdded, TurnStarted, TurnSteered
from turnwire.domain.conversation.messages import Message, MessageStatus
from turnwire.domain.conversation.sizes import check_conversation, message_bytes
from turnwire.ports.commit import (
    AddSpending,
    Commit,
    Committed,
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
    RemoveMessage,
    RequireHead,
    RequireQueueRevision,
    RequireQuota,
    UseUpload,
)
from turnwire.ports.provider import Provider, RequestWriter
from turnwire.ports.store import Store

MAX_BYTES = 256 * 2**20
"""Maximum memory of all sessions together: about 100,000 messages of 400 characters, with their JSON. A session that
alone needs more is not kept, and costs all of its messages each time."""

IDLE_SECONDS = 600.0
"""Time after which an unused session is dropped, once another one is used. Few people think longer between two
messages."""

MAX_WRITERS = 2
"""Maximum number of request writers kept for one session: for the provider of its model, and for that of a fallback."""

MAX_ROUNDS = 20
"""Maximum number of times that a changing conversation is read again; then the last read is used, and not kept."""

NO_MESSAGE = (
    PutSession
    | NoteFirstWords
    | MarkArchived
    | PutTurn
    | PutDraft
    | OrderQueue
    | PutFile
    | UseUpload
    | RecordRequest
    | PutPermission
    | PutQuestion
    | AddSpending
    | RequireHead
    | RequireQueueRevision
    | RequireQuota
)
"""Changes that leave the messages of a conversation as they are for requests, which contain no streaming message. A
change that is not listed may affect any message."""


class LiveConversation:
    """The conversation of one session, and the intermediate results of its requests.

    `messages` is changed on the event loop by `begin` and `apply`, in the order of the commits. The holder of `lock`
    uses the assembly and the writers: it takes them out and puts them back when they are complete, so that one whose
    user was cancelled or failed is dropped. `_same` is the number of first messages that the assembly knows; only
    `take_assembly` raises it.
    """

    def __init__(self) -> None:
        """Starts without messages, not known yet."""
        self.lock = asyncio.Lock()
        self.users = 0
        self.used_at = 0.0
        self.counted_bytes = 0
        """The part of `size_bytes` that is included in the sum of all conversations."""
        self.is_known = False
        """Whether it was read, and all commits since were applied."""
        self.messages: list[Message] = []
        """In order, without queued ones. One that streams may be without its drafts, because no request contains it."""
        self.message_bytes = 0
        self.missed: list[tuple[Commit, Committed]] | None = None
        """The commits that became durable while it is being read; None at other times."""
        self._places: dict[str, int] = {}
        self._sizes: list[int] = []
        """Counted size of each message; that of a text grows when it is encoded."""
        self._same = 0
        self._assembly: Assembly | None = None
        self._writers: OrderedDict[str, tuple[Provider, RequestWriter]] = OrderedDict()

    @property
    def size_bytes(self) -> int:
        """Approximate memory of all of it."""
        assembly = 0 if self._assembly is None else self._assembly.size_bytes
        return self.message_bytes + assembly + sum(writer.size_bytes for _, writer in self._writers.values())

    def take_assembly(self) -> tuple[Assembly, int]:
        """Takes out the assembly; returns it, and the number of first messages that are unchanged since its
        last use.
        """
        assembly, same = self._assembly or Assembly(), self._same
        self._assembly, self._same = None, len(self.messages)
        return assembly, same

    def put_assembly(self, assembly: Assembly) -> None:
        """Keeps an assembly that was used with the messages present when it was taken."""
        self._assembly = assembly

    def take_writer(self, provider: Provider) -> RequestWriter:
        """Takes out the writer for a provider; makes a new one if none is kept."""
        known = self._writers.pop(provider.provider_id, None)
        return known[1] if known is not None and known[0] is provider else provider.writer()

    def put_writer(self, provider: Provider, writer: RequestWriter) -> None:
        """Keeps a writer, and drops the least recently used one above the maximum."""
        self._writers[provider.provider_id] = provider, writer
        if len(self._writers) > MAX_WRITERS:
            self._writers.popitem(last=False)

    def begin(self, messages: Sequence[Message]) -> None:
        """Takes the conversation as it was read."""
        self.messages = list(messages)
        self._places = {message.message_id: at for at, message in enumerate(messages)}
        self._sizes = list(map(message_bytes, messages))
        self.message_bytes = sum(self._sizes)
        self._same = 0
        self.is_known = True

    def forget(self) -> None:
        """Drops everything. A user keeps the parts that it has taken out."""
        self.is_known = False
        self.messages, self._places, self._sizes, self.message_bytes, self._same = [], {}, [], 0, 0
        self._assembly = None
        self._writers.clear()

    def apply(self, commit: Commit, committed: Committed) -> bool:
        """Applies a commit. Returns False when the conversation has to be read again."""
        for change in commit.changes:
            match change:
                case PutMessage():
                    if not self._put(change, commit, committed):
                        return False
                case RemoveMessage(message_id):
                    if message_id in self._places:
                        return False
                case _ if not isinstance(change, NO_MESSAGE):
                    return False
        return True

    def _put(self, change: PutMessage, commit: Commit, committed: Committed) -> bool:
        message = change.message
        if change.at_end or change.is_hidden or change.branch is not None:
            return False
        at = self._places.get(message.message_id)
        if message.status is MessageStatus.QUEUED:
            return at is None
        before = committed.previous_message_ids.get(message.message_id, "")
        message = msgspec.structs.replace(message, previous_message_id=before, alternative_count=0, alternative_index=0)
        size = message_bytes(message)
        if at is not None:
            self.message_bytes += size - self._sizes[at]
            self.messages[at], self._sizes[at] = message, size
            self._same = min(self._same, at)
            return True
        last = self.messages[-1].message_id if self.messages else ""
        if before != last or not _joins(message.message_id, commit):  # it may be one off the path
            return False
        self._places[message.message_id] = len(self.messages)
        self.messages.append(message)
        self._sizes.append(size)
        self.message_bytes += size
        return True


def _joins(message_id: str, commit: Commit) -> bool:
    """Returns whether a commit reports that a message joins the conversation, as a new one or from the queue."""
    for event in commit.events:
        match event.kind:
            case MessageAdded(message):
                joining = message.message_id
            case TurnStarted(turn):
                joining = turn.user_message_id
            case TurnSteered(joining):
                pass
            case _:
                continue
        if joining == message_id:
            return True
    return False


class LiveConversations:
    """The recently used conversations, by tenant and session. Used on the event loop only."""

    def __init__(self, store: Store, max_bytes: int = MAX_BYTES) -> None:
        """Follows the commits of a store.

        Args:
            store: The source of conversations.
            max_bytes: Maximum memory of all of them.
        """
        self._store = store
        self._max_bytes = max_bytes
        self._live: OrderedDict[tuple[str, str], LiveConversation] = OrderedDict()
        self.size_bytes = 0
        """Memory that all conversations take."""
        store.follow(self._apply)

    @asynccontextmanager
    async def use(self, tenant: str, session_id: str) -> AsyncIterator[LiveConversation]:
        """Yields the conversation of a session for exclusive use. It may not have been read yet, see `read`."""
        key = tenant, session_id
        conversation = self._live.setdefault(key, LiveConversation())
        self._live.move_to_end(key)
        conversation.users += 1  # so that it stays while a task waits for it
        try:
            async with conversation.lock:
                yield conversation
        finally:
            conversation.users -= 1
            conversation.used_at = time.monotonic()
            self._count(conversation)
            if not conversation.is_known and not conversation.users:
                self._drop(key)
            self._drop_idle()

    async def read(self, conversation: LiveConversation, tenant: str, session_id: str) -> tuple[Message, ...]:
        """Returns the messages of a conversation that the caller uses, in order, without queued ones.

        Raises:
            SessionNotFound: there is no such session (any more).
            ConversationTooLarge: it is too large to be read.
            StorageError: it could not be read.
        """
        found: tuple[Message, ...] = ()
        for _ in range(MAX_ROUNDS):
            if not conversation.is_known:
                found = await self._read(conversation, tenant, session_id)
            if conversation.is_known:
                check_conversation(conversation.message_bytes)
                return tuple(conversation.messages)
        return found

    async def _read(self, conversation: LiveConversation, tenant: str, session_id: str) -> tuple[Message, ...]:
        """Reads a conversation, and applies the commits made meanwhile, of which the read has seen some."""
        missed: list[tuple[Commit, Committed]] = []
        conversation.missed = missed
        try:
            found = await self._store.of(tenant).history(session_id)
            # by now `missed` has every commit that the read has seen, so none of them is applied later to newer
            # messages
            await self._store.moment_after_reads(tenant, session_id)
        finally:
            conversation.missed = None
        conversation.begin(found)
        if not all(conversation.apply(*one) for one in missed):
            conversation.forget()
        return found

    def bytes_of(self, tenant: str, session_id: str) -> int | None:
        """Returns the approximate memory of the messages of a conversation; None when it is not known."""
        conversation = self._live.get((tenant, session_id))
        return conversation.message_bytes if conversation is not None and conversation.is_known else None

    def leave(self, is_left: Callable[[str], bool]) -> None:
        """Drops the conversations of sessions, given by their ids, that another node may change from now on."""
        for key in [key for key in self._live if is_left(key[1])]:
            if self._live[key].users:
                self._live[key].forget()
            else:
                self._drop(key)

    def clear(self) -> None:
        """Drops all conversations that are not in use."""
        for key in [key for key, conversation in self._live.items() if not conversation.users]:
            self._drop(key)

    def _apply(self, commit: Commit, committed: Committed) -> None:
        """Applies a commit that became durable."""
        key = commit.tenant, commit.session_id
        conversation = self._live.get(key)
        if conversation is None:
            return
        if conversation.missed is not None:
            conversation.missed.append((commit, committed))
        elif conversation.is_known and not conversation.apply(commit, committed):
            conversation.forget()
            if not conversation.users:
                self._drop(key)
        self._count(conversation)

    def _count(self, conversation: LiveConversation) -> None:
        size = conversation.size_bytes
        self.size_bytes += size - conversation.counted_bytes
        conversation.counted_bytes = size

    def _drop(self, key: tuple[str, str]) -> None:
        conversation = self._live.pop(key, None)
        if conversation is not None:
            self.size_bytes -= conversation.counted_bytes
            conversation.counted_bytes = 0
            conversation.forget()

    def _drop_idle(self) -> None:
        """Drops conversations, least recently used first, until the rest fits and is in use or was used recently."""
        idle_since = time.monotonic() - IDLE_SECONDS
        for _ in range(len(self._live)):
            key, conversation = next(iter(self._live.items()))
            if self.size_bytes <= self._max_bytes and (conversation.users or conversation.used_at >= idle_since):
                return
            if conversation.users:
                self._live.move_to_end(key)
            else:
                self._drop(key)
