"""The one thread on which large messages are parsed and made."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from turnwire.api.admission.flow import Client
from turnwire.domain.fair_semaphore import FairSemaphore

T = TypeVar("T")


class LargeMessages:
    """Runs what takes long with a large message, one after the other. Used on the event loop only.

    More threads would only take the interpreter from the event loop. Tenants at each network take turns, and so do
    their connections: however many messages one of them has, the next one of another waits for one or two.
    """

    def __init__(self) -> None:
        """Starts the thread with the first message."""
        self._thread = ThreadPoolExecutor(1, "large messages")
        self._turns = FairSemaphore(1)

    async def run(self, client: Client, work: Callable[[], T]) -> T:
        """Returns the result of the work. When this is cancelled, work that has begun goes on, and its result is lost.

        Args:
            client: The client of the message.
            work: Called on the thread.
        """
        async with self._turns.held(client.flow, 1, client.connection):
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
