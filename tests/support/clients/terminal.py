"""A program in a real terminal: tmux shows what a person would see, and types what a person would."""

import asyncio
import shlex
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


class Terminal:
    """One window of tmux with a program in it. Make it with `terminal`."""

    def __init__(self, socket: Path) -> None:
        self._tmux = ["tmux", "-S", str(socket)]

    def _run(self, *command: str) -> str:
        done = subprocess.run([*self._tmux, *command], check=True, capture_output=True, text=True, timeout=200)
        return done.stdout

    def screen(self) -> str:
        """Returns what is on the screen, without styles."""
        return self._run("capture-pane", "-p")

    def title(self) -> str:
        """Returns the title that a program gave the window."""
        return self._run("display-message", "-p", "#{pane_title}").strip()

    def type(self, text: str) -> None:
        """Types text as it is."""
        self._run("send-keys", "-l", "--", text)

    def press(self, *keys: str) -> None:
        """Presses keys by the names of tmux, such as `Enter` and `C-c`."""
        self._run("send-keys", *keys)

    def paste(self, text: str) -> None:
        """Pastes text as a terminal does."""
        subprocess.run([*self._tmux, "load-buffer", "-"], check=True, input=text, text=True, timeout=200)
        self._run("paste-buffer", "-p")

    def resize(self, columns: int, lines: int) -> None:
        """Gives the window another size."""
        self._run("resize-window", "-x", str(columns), "-y", str(lines))

    async def shows(self, wanted: str | Callable[[str], bool], seconds: float = 200) -> str:
        """Waits until the screen has a text, or is as wanted; returns it.

        Raises:
            AssertionError: it does not come; the message is the screen.
        """
        screen = ""
        deadline = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < deadline:
            screen = self.screen()
            if wanted in screen if isinstance(wanted, str) else wanted(screen):
                return screen
            await asyncio.sleep(0.05)
        raise AssertionError(f"not on the screen: {wanted}\n{screen}")

    async def gone(self, unwanted: str) -> str:
        """Waits until the screen does not have a text; returns it. Raises AssertionError as `shows` does."""
        return await self.shows(lambda screen: unwanted not in screen)


@contextmanager
def terminal(
    folder: Path, command: list[str], columns: int = 100, lines: int = 30, environ: dict[str, str] | None = None
) -> Iterator[Terminal]:
    """Runs a program in a terminal of its own; when the program ends, the screen says `ended CODE`.

    Args:
        folder: For the socket; its path must be short.
        command: The program and its arguments.
        columns: Of the window.
        lines: Of the window.
        environ: Variables of the program besides those of this process.
    """
    socket = folder / "tmux"
    variables = [f"{name}={value}" for name, value in (environ or {}).items()]
    script = f"{shlex.join(['env', *variables, *command])}; echo ended $?; read -r _"
    size = ["-x", str(columns), "-y", str(lines)]
    started = ["tmux", "-S", str(socket), "-f", "/dev/null", "new-session", "-d", *size, script]
    subprocess.run(started, check=True, timeout=200)
    try:
        yield Terminal(socket)
    finally:
        subprocess.run(["tmux", "-S", str(socket), "kill-server"], check=False, timeout=200)
