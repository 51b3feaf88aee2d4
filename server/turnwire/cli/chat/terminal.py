"""The prompt at the bottom of a terminal, what is live above it, and output that scrolls away above both."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from prompt_toolkit import Application, PromptSession
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples, to_formatted_text
from prompt_toolkit.history import History
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import Output
from prompt_toolkit.renderer import CPR_Support

MIN_FREE_ROWS = 8
"""Rows that are left to the prompt and its menu."""


class Terminal:
    """One application of prompt_toolkit, which never stops between two lines: what is typed meanwhile is not lost."""

    def __init__(
        self,
        *,
        history: History,
        completer: Completer,
        on_line: Callable[[str], bool],
        on_interrupt: Callable[[], None],
        on_reasoning: Callable[[], None],
        source: Input | None = None,
        output: Output | None = None,
    ) -> None:
        """Args:
        history: What was typed before.
        completer: Completes on Tab.
        on_line: Gets what was typed when Enter is pressed; False leaves it in the prompt, and out of the history.
        on_interrupt: Called for Ctrl-C.
        on_reasoning: Called for Ctrl-O.
        source: Where keys come from; None for the terminal.
        output: Where to write; None for the terminal.
        """
        self._on_line = on_line
        self._live: StyleAndTextTuples = []
        self._session: PromptSession[str] = PromptSession(
            self._message,
            multiline=True,
            history=history,
            completer=completer,
            complete_while_typing=False,
            enable_suspend=True,
            erase_when_done=True,
            key_bindings=_keys(on_interrupt, on_reasoning),
            prompt_continuation=". ",
            reserve_space_for_menu=6,
            input=source,
            output=output,
        )
        self._session.default_buffer.accept_handler = self._accept
        self.ready = asyncio.Event()
        """Set when the terminal takes single keys, and has said in which row the prompt is.

        What is typed before it shows as text of the prompt. What is written before it can scroll away: the row that the
        terminal then names is not that of the prompt any more.
        """
        self._session.app.after_render += self._note_ready

    async def run(self) -> None:
        """Takes lines until Ctrl-D, or `end`."""
        with suppress(EOFError):
            await self._session.prompt_async()

    def end(self) -> None:
        """Ends `run`. Has no effect when it does not run."""
        if self._session.app.is_running:
            self._session.app.exit(result="")

    @property
    def width(self) -> int:
        """The columns of the terminal."""
        return self._session.output.get_size().columns

    def show(self, finished: str, live: str) -> None:
        """Writes lines above everything that is live, which stay, and shows other live lines above the prompt.

        Both in one step, so that what becomes finished is never there twice. When there is no room for all live lines,
        the last ones are shown.
        """
        app, output = self._session.app, self._session.output
        room = max(output.get_size().rows - MIN_FREE_ROWS, 3)
        self._live = to_formatted_text(ANSI("".join(live.splitlines(keepends=True)[-room:])))
        if finished:
            # Not with run_in_terminal: it gives the terminal its usual mode back for a moment, in which keys are echoed
            # and Enter becomes Ctrl-J.
            app.renderer.erase()
            output.write_raw(finished)
            output.flush()
        app.invalidate()

    def clear_line(self) -> None:
        """Empties the prompt."""
        self._session.default_buffer.reset()

    def take_away(self) -> str:
        """Empties the prompt and returns what was in it."""
        text = self._session.default_buffer.text
        self.clear_line()
        return text

    def give_back(self, text: str) -> None:
        """Puts a text into the prompt, unless something else is being typed."""
        if not self._session.default_buffer.text:
            self._session.default_buffer.insert_text(text)

    def _note_ready(self, app: Application[str]) -> None:
        # A terminal that does not answer gets two seconds.
        if not app.renderer.waiting_for_cpr or app.renderer.cpr_support is CPR_Support.NOT_SUPPORTED:
            self.ready.set()

    def _message(self) -> StyleAndTextTuples:
        return [*self._live, ("bold", "> ")]

    def _accept(self, buffer: Buffer) -> bool:
        """Returns whether the text stays, as prompt_toolkit wants it."""
        return not self._on_line(buffer.text)


def _keys(on_interrupt: Callable[[], None], on_reasoning: Callable[[], None]) -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def send(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    @keys.add("c-j")
    def add_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-u")
    def clear(event: KeyPressEvent) -> None:
        # All lines: prompt_toolkit's own key takes what is before the cursor in one.
        event.current_buffer.reset()

    @keys.add("c-c")
    @keys.add("<sigint>")
    def interrupt(_: KeyPressEvent) -> None:
        on_interrupt()

    @keys.add("c-o")
    def reasoning(_: KeyPressEvent) -> None:
        on_reasoning()

    return keys
