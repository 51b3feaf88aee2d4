"""A client that holds a conversation as the contract tells it to: it folds, and reads the list when it has to."""

from opencode.message.message_pb2 import ListMessagesRequest
from tests.support.clients.conversation import Watch
from tests.support.oracles.fold import SessionFold
from tests.support.servers.running import Client


class Reader:
    """Follows one session."""

    def __init__(self, client: Client, session_id: str) -> None:
        """Takes the session."""
        self.client = client
        self.fold = SessionFold(session_id)

    async def follow(self, watch: Watch, sequence: int) -> None:
        """Reads events up to a sequence."""
        while (self.fold.head or 0) < sequence:
            for event in await watch.batch():
                if event.sequence and event.sequence <= (self.fold.head or 0):
                    continue  # what the list had already
                rereads = self.fold.rereads
                self.fold.apply(event)
                if self.fold.rereads > rereads:
                    await self._reread()

    async def _reread(self) -> None:
        request = ListMessagesRequest(session_id=self.fold.session_id, page_size=1000)
        listed = await self.client.messages.ListMessages(request)
        self.fold = SessionFold(self.fold.session_id, listed.sequence, listed.messages)
