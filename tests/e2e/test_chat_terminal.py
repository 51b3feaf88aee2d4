"""The terminal of the chat, as terminals answer it."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.data_structures import Size
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.renderer import Renderer

from tests.support.clients.chat_room import Screen
from turnwire.cli.chat.commands import CommandCompleter
from turnwire.cli.chat.terminal import Terminal

ASKS_FOR_THE_ROW = "\x1b[6n"


class AnsweringScreen(Screen):
    """One of which prompt_toolkit wants to know where the cursor is."""

    def isatty(self) -> bool:
        """Returns that it is a terminal."""
        return True


class Window:
    """A running terminal: what it wrote, and keys for it."""

    def __init__(self, terminal: Terminal, screen: Screen, keys: PipeInput) -> None:
        """Takes the parts."""
        self.terminal = terminal
        self.screen = screen
        self.keys = keys

    async def wrote(self, text: str) -> None:
        """Waits for a text."""
        while text not in self.screen.getvalue():
            self.screen.written.clear()
            await self.screen.written.wait()


@pytest.fixture
async def window() -> AsyncIterator[Window]:
    """A terminal that says where its cursor is when the test does."""
    screen = AnsweringScreen()
    output = Vt100_Output(screen, lambda: Size(rows=20, columns=60), term="xterm")
    with create_pipe_input() as keys, create_app_session(input=keys, output=output):
        terminal = Terminal(
            history=InMemoryHistory(),
            completer=CommandCompleter(list),
            on_line=lambda _: True,
            on_interrupt=lambda: None,
            on_reasoning=lambda: None,
            source=keys,
            output=output,
        )
        running = asyncio.create_task(terminal.run())
        yield Window(terminal, screen, keys)
        terminal.end()
        await running


async def test_it_is_ready_when_its_row_is_known(window: Window) -> None:
    """What is written before would scroll away: the prompt takes the rows that the old place left."""
    await window.wrote(">")
    assert ASKS_FOR_THE_ROW in window.screen.getvalue()
    assert not window.terminal.ready.is_set()
    window.keys.send_text("\x1b[1;1R")
    await window.terminal.ready.wait()


async def test_it_is_ready_where_the_row_is_never_told(monkeypatch: pytest.MonkeyPatch, window: Window) -> None:
    """After the time that prompt_toolkit waits."""
    monkeypatch.setattr(Renderer, "CPR_TIMEOUT", 0.01)
    await window.terminal.ready.wait()
