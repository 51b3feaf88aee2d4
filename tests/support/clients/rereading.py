"""A client that holds a conversation as the contract tells it to: it folds, and reads the list when it has to."""

from opencode.event.session_event_pb2 import SessionEvent
from opencode.message.message_pb2 import ListMessagesRequest
from tests.support.clients.conversation import Watch
from tests.support.oracles.fold import SessionFold
from tests.support.servers.running import Client


class Reader:
    """Follows one session."""

    def __init__(self, client: Client, session_id: str) -> None:
        self.client = client
        self.fold = SessionFold(session_id)
        self._is_behind = False  # the list is newer than what comes

    async def follow(self, watch: Watch, sequence: int) -> None:
        """Reads events up to a sequence."""
        while (self.fold.head or 0) < sequence:
            for event in await watch.batch():
                await self.take(event)

    async def take(self, event: SessionEvent) -> None:
        """Takes in one event, unless it is older than the list."""
        reached = event.sequence or event.caught_up.head_sequence or event.heartbeat.head_sequence
        if self._is_behind and reached < (self.fold.head or 0):
            return
        self._is_behind = False
        if event.sequence and event.sequence <= (self.fold.head or 0):
            return  # what the list had already
        rereads = self.fold.rereads
        self.fold.apply(event)
        if self.fold.rereads > rereads:
            await self._reread()
            self._is_behind = (self.fold.head or 0) > event.sequence

    async def _reread(self) -> None:
        request = ListMessagesRequest(session_id=self.fold.session_id, page_size=1000)
        listed = await self.client.messages.ListMessages(request)
        self.fold = SessionFold(self.fold.session_id, listed.sequence, listed.messages)
