"""Housekeeping: removes what is no longer needed in small transactions, so that no commit waits for long."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence

from turnwire.domain.errors import ShuttingDown, StorageError
from turnwire.event_loop.tasks import end
from turnwire.storage.accounts import Ledger
from turnwire.storage.sql.database import Database
from turnwire.storage.sql.writer import GroupWriter, Other

PAUSE_SECONDS = 0.005
"""Delay between two rounds of steps, for commits, which come first anyway. A million old events take about two minutes,
100,000 messages to index one, and a gigabyte of a removed upload five seconds, which is less than sending it takes."""
ROUND_SECONDS = 60.0
"""Interval between checks for something to do, unless the task is woken."""
RETRY_SECONDS = 60.0
"""Delay after a failed step, for example on a full disk. No caller waits for it."""
LOOK_SECONDS = 1.0
"""Interval between checks of the files: a server that only reads notices a lost file after this time."""

Step = Callable[[], Awaitable[bool]]
"""Does a small part, which blocks commits for some milliseconds. Returns False when nothing is left to do for now. The
remaining work is read from the database, so a start, a crash or a failed commit between two steps loses nothing."""


def stored(writer: GroupWriter, step: Callable[[Database, Ledger], bool]) -> Step:
    """Returns a step that runs in the writer's transactions and notes its changes of the accounts."""

    async def carry_out() -> bool:
        return await writer.carry_out(Other(step, is_step=True))

    return carry_out


class Housekeeping:
    """One task, which `start` makes and `aclose` ends. Used on the event loop only.

    It also checks that the files of the database are in place while nothing is stored; each transaction does so itself.
    """

    def __init__(self, writer: GroupWriter, steps: Sequence[Step]) -> None:
        """Takes the writer, which is closed after this, and the steps, which take turns."""
        self._writer = writer
        self._steps = steps
        self._wake = asyncio.Event()  # set by `wake`, cleared by the task before it checks for something to do
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts the task, which checks at once for what an earlier run has left."""
        self._task = asyncio.create_task(self._run(), name="housekeeping")

    def wake(self) -> None:
        """Tells the task that there may be something to do."""
        self._wake.set()

    async def aclose(self) -> None:
        """Ends the task; the next start resumes it. Idempotent."""
        await end([self._task])

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        next_round, pending = loop.time(), list[Step]()
        while True:
            if self._wake.is_set() or loop.time() >= next_round:
                self._wake.clear()
                next_round, pending = loop.time() + ROUND_SECONDS, list(self._steps)
            try:
                pending = [step for step in pending if await step()]
                await self._writer.look()
            except (StorageError, ShuttingDown):  # `aclose` follows the latter soon
                next_round, pending = loop.time() + RETRY_SECONDS, []
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PAUSE_SECONDS if pending else LOOK_SECONDS):
                    await self._wake.wait()
