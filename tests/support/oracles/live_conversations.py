"""Compares the conversations that a server has in memory with those that are stored."""

import msgspec

from turnwire.core.conversation.conversations import LiveConversation, LiveConversations
from turnwire.domain.conversation.messages import Message, MessageStatus
from turnwire.ports.store import Store

_ATTEMPTS = 50
"""Commits may come between a read and the look at the memory."""


async def check_conversations(conversations: LiveConversations, store: Store) -> int:
    """Asserts that each conversation in memory is what is stored. Returns how many there are."""
    live = [key for key, conversation in conversations._live.items() if conversation.is_known]
    for key in live:
        for _ in range(_ATTEMPTS):
            async with conversations.use(*key) as conversation:
                if await _is_stored(conversation, store, *key):
                    break
        else:
            raise AssertionError(f"{key} was changed during each of {_ATTEMPTS} reads")
    assert conversations.size_bytes == sum(conversation.size_bytes for conversation in conversations._live.values())
    return len(live)


async def _is_stored(conversation: LiveConversation, store: Store, tenant: str, session_id: str) -> bool:
    """Compares one conversation. Returns False when it was changed meanwhile."""
    if not conversation.is_known:
        return True
    before = list(conversation.messages)
    stored = await store.of(tenant).history(session_id)
    await store.moment_after_reads(tenant, session_id)
    known = conversation.messages
    if len(before) != len(known) or any(one is not other for one, other in zip(before, known, strict=True)):
        return False
    assert list(map(_compared, known)) == list(map(_compared, stored))
    assert (len(conversation._sizes), conversation.message_bytes) == (len(known), sum(conversation._sizes))
    return True


def _compared(message: Message) -> Message | tuple[str, MessageStatus]:
    """Returns what is compared: of a message that streams little, for no request has it."""
    if message.status is MessageStatus.STREAMING:
        return message.message_id, message.status
    return msgspec.structs.replace(message, alternative_count=0, alternative_index=0)
