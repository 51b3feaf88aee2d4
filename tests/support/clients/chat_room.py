"""The chat of the command line in the test's own process: keys go in, and what a terminal was written comes out."""

import asyncio
import contextlib
import io
import re
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from prompt_toolkit.application import create_app_session
from prompt_toolkit.data_structures import Size
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output.vt100 import Vt100_Output

from turnwire.cli.chat.room import Room
from turnwire.cli.chat.server_calls import ServerCalls
from turnwire.cli.chat.terminal import Terminal
from turnwire.cli.connection import Connection

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|\x1b[=>]")
"""What prompt_toolkit writes to move, colour and clear."""

PATIENCE_SECONDS = 200
"""What has not come by then never comes; the error shows the screen."""


class Screen(io.StringIO):
    """Remembers what is written, and wakes who waits for it."""

    def __init__(self) -> None:
        """Begins empty."""
        super().__init__()
        self.live = ""
        """The lines above the prompt that change, without escape codes: on a terminal only what changed is written."""
        self.written = asyncio.Event()

    def write(self, text: str) -> int:
        """Takes text."""
        self.written.set()
        return super().write(text)


class _WatchedTerminal(Terminal):
    """Tells a screen what is live."""

    def __init__(self, *, screen: Screen, **more: Any) -> None:
        super().__init__(**more)
        self._screen = screen

    def show(self, finished: str, live: str) -> None:
        super().show(finished, live)
        self._screen.live = ESCAPES.sub("", live)
        self._screen.written.set()


class Chat:
    """A person at the chat."""

    def __init__(self, room: Room, keys: PipeInput, screen: Screen, running: asyncio.Task[None]) -> None:
        """Takes the running chat."""
        self._running = running
        self.room = room
        self._keys = keys
        self._screen = screen
        self._seen = 0

    def press(self, keys: str) -> None:
        """Sends keys as a terminal does: Enter is a carriage return."""
        self._keys.send_text(keys)

    def paste(self, text: str) -> None:
        """Sends a text as terminals send what is pasted."""
        self._keys.send_text(f"\x1b[200~{text}\x1b[201~")

    async def shows(self, *texts: str) -> str:
        """Waits until the texts were written in this order, after what was waited for before.

        Returns all that was written since. Raises AssertionError when they do not come.
        """
        pattern = re.compile(".*?".join(map(re.escape, texts)), re.DOTALL)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not (found := pattern.search(self.everything, self._seen)):
                    self._screen.written.clear()
                    await self._screen.written.wait()
        except TimeoutError:
            raise AssertionError(f"{texts} did not come: {self.everything}") from None
        before, self._seen = self._seen, found.end()
        return self.everything[before : found.end()]

    async def has_live(self, *texts: str) -> str:
        """Waits until the texts stand in this order in the lines above the prompt that change.

        Returns those lines. Raises AssertionError when they do not come.
        """
        pattern = re.compile(".*?".join(map(re.escape, texts)), re.DOTALL)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not pattern.search(lines := self._screen.live):
                    self._screen.written.clear()
                    await self._screen.written.wait()
        except TimeoutError:
            raise AssertionError(f"{texts} did not come: {self._screen.live}") from None
        return lines

    async def ended(self) -> None:
        """Waits until the person has ended the chat."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self._running

    @property
    def everything(self) -> str:
        """All that was written, without escape codes."""
        return ESCAPES.sub("", self._screen.getvalue()).replace("\r", "")


@contextlib.asynccontextmanager
async def chatting(address: str, session_id: str = "") -> AsyncIterator[Chat]:
    """Runs the chat with a server until the block ends, or the person ends it."""
    screen = Screen()
    output = Vt100_Output(screen, lambda: Size(rows=40, columns=100), term="xterm", enable_cpr=False)
    with create_pipe_input() as keys, create_app_session(input=keys, output=output):
        terminal = partial(_WatchedTerminal, screen=screen, history=InMemoryHistory(), source=keys, output=output)
        async with Connection(address).open_async() as channel:
            room = Room(ServerCalls(channel), "", terminal)
            await room.open(session_id)
            running = asyncio.create_task(room.run())
            try:
                yield Chat(room, keys, screen, running)
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
