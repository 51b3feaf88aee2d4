"""The sessions of this node's shards, as far as they are in memory."""

from collections.abc import Callable

from turnwire.core.conversation.conversations import LiveConversations
from turnwire.core.turns.registry import Turns
from turnwire.core.use_cases.moving.imports import Imports
from turnwire.domain.shards import shard_of
from turnwire.feed.memory import Feed


class NodeSessions:
    """Implements `cluster.ownership.ShardSessions`; see there. Used on the event loop only."""

    def __init__(
        self,
        turns: Turns,
        conversations: LiveConversations,
        feed: Feed,
        imports: Imports,
        forget_cached: Callable[[Callable[[str], bool]], None],
    ) -> None:
        """Args:
        turns: The running and waiting turns.
        conversations: The conversations of sessions with turns.
        feed: The watches.
        imports: The imports, and what is brought here for those of other nodes.
        forget_cached: Drops what the store keeps of some sessions, by their ids.
        """
        self._turns, self._conversations, self._feed = turns, conversations, feed
        self._imports, self._forget_cached = imports, forget_cached

    async def recover(self, shards: frozenset[int]) -> None:
        """Continues or ends the turns that an earlier owner left."""

        def is_taken(session_id: str) -> bool:
            return shard_of(session_id) in shards

        self._forget_cached(is_taken)  # read here for a call of any node, and changed by its owner since
        await self._turns.recover(is_taken)

    async def leave(self, shards: frozenset[int]) -> None:
        """Stops what runs, ends the watches, and drops what is in memory."""

        def is_left(session_id: str) -> bool:
            return shard_of(session_id) in shards

        self._feed.leave(is_left)
        await self._imports.leave(is_left)
        await self._turns.leave(is_left)
        self._conversations.leave(is_left)
        self._forget_cached(is_left)

    def is_idle(self, shard: int) -> bool:
        """Returns whether no turn runs or waits in a shard, and no import."""

        def is_in_it(name: str) -> bool:
            return shard_of(name) == shard

        return self._turns.is_idle(is_in_it) and self._imports.is_idle(is_in_it)
