"""The pace at which a server stores things now: what it promises within a time, it keeps if the machine allows it."""

import asyncio
import time

import grpc

from opencode.message.content_pb2 import MESSAGE_TYPE_HOST
from opencode.message.message_pb2 import AppendMessageRequest
from tests.support.clients.conversation import new_session, text
from tests.support.servers.running import Client

PAUSE_SECONDS = 0.05


class Pace:
    """A client that stores something again and again, and remembers how long that took at most."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.longest_seconds = 0.0
        """From a request to its answer; of the last one, to the end of the connection."""

    async def run(self) -> None:
        """Goes on until the server is gone."""
        try:
            session_id = await new_session(self._client)
            request = AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_HOST, parts=[text("note")])
            while True:
                began = time.monotonic()
                try:
                    await self._client.messages.AppendMessage(request)
                finally:
                    self.longest_seconds = max(self.longest_seconds, time.monotonic() - began)
                await asyncio.sleep(PAUSE_SECONDS)
        except grpc.aio.AioRpcError as error:
            assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED), error

    def within(self, seconds: float) -> float:
        """Returns a time that a quick server keeps, as it is on a machine as slow as it was."""
        return seconds + 3 * self.longest_seconds
