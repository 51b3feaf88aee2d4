"""`turnwire chat` as a person runs it: a real process at a pseudo terminal, or with pipes, and a real server."""

import asyncio
import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.servers.mcp import ENVIRON, ready, stdio
from tests.support.servers.running import connect, running_server
from turnwire.app import Server
from turnwire.cli.chat.history import MAX_BYTES, MAX_ENTRY_CHARS, open_history

TURNWIRE = [sys.executable, "-m", "turnwire", "chat", "--target"]
OWN_TERMINAL = [
    sys.executable,
    "-c",
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])",
]
"""Makes its standard input the terminal of its session, so that Ctrl-C is a signal, and then is another command."""

COLOURS = re.compile(rb"\x1b\[(?:[0-9]+;)*(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;[0-9]+)*m")


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """A server with the default configuration."""
    async with running_server(tmp_path_factory.mktemp("chat")) as running:
        yield running


@pytest.fixture
async def asking(tmp_path: Path) -> AsyncIterator[Server]:
    """A server whose tools ask for permission."""
    (tmp_path / "asking").mkdir()
    toml = stdio(tmp_path) + '[permissions]\n"test.*" = "ask"\n'
    async with running_server(tmp_path / "asking", toml, ENVIRON) as running, connect(running.address) as client:
        await ready(client)
        yield running


def environ(home: Path, **more: str) -> dict[str, str]:
    """Returns the environment of a person with a home of their own."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("TURNWIRE_", "XDG_", "NO_COLOR", "COLORTERM"))}
    return {**clean, "HOME": str(home), "TERM": "xterm-256color", "PROMPT_TOOLKIT_NO_CPR": "1", **more}


class AtTerminal:
    """A command at a pseudo terminal of 100 columns."""

    def __init__(self, arguments: list[str], variables: dict[str, str]) -> None:
        """Starts it."""
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        self.before = termios.tcgetattr(self.master)
        self.process = subprocess.Popen(
            [*OWN_TERMINAL, *arguments], env=variables, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
        )
        os.close(slave)
        self.output = b""
        self.echoed = False
        """Whether keys were echoed when output came."""
        self.grew = asyncio.Event()
        asyncio.get_running_loop().add_reader(self.master, self._read)

    def _read(self) -> None:
        try:
            new = os.read(self.master, 65536)
        except OSError:  # what Linux says when the other end is closed
            new = b""
        if not new:
            asyncio.get_running_loop().remove_reader(self.master)
        self.output += new
        self.echoed |= bool(termios.tcgetattr(self.master)[3] & termios.ECHO)
        self.grew.set()

    def type(self, keys: str) -> None:
        """Presses keys."""
        os.write(self.master, keys.encode())

    async def shows(self, text: str) -> None:
        """Waits until the text was written."""
        try:
            async with asyncio.timeout(200):
                while text.encode() not in self.output:
                    self.grew.clear()
                    await self.grew.wait()
        except TimeoutError:
            raise AssertionError(f"{text!r} did not come: {self.output!r}") from None

    async def ended(self) -> int:
        """Waits for the end and returns the exit code."""
        return await asyncio.to_thread(self.process.wait, 30)


@contextlib.asynccontextmanager
async def at_terminal(arguments: list[str], variables: dict[str, str]) -> AsyncIterator[AtTerminal]:
    """Runs a command at a terminal, and ends it with the block."""
    running = AtTerminal(arguments, variables)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()
        asyncio.get_running_loop().remove_reader(running.master)
        os.close(running.master)


async def test_a_chat_from_its_first_line_to_its_last(served: Server, tmp_path: Path) -> None:
    """It names how to go on, leaves the terminal as it was, and keeps what was typed for its owner alone."""
    async with at_terminal([*TURNWIRE, served.address], environ(tmp_path)) as chat:
        await chat.shows("Ctrl-D ends.")
        chat.type("**bold**\r")
        await chat.shows("tokens in")
        assert b"\x1b[1mbold\x1b[0m" in chat.output
        chat.type("slow\n/sleep 600\r")
        await chat.shows("\x1b[1mslow")
        chat.type("\x03")
        await chat.shows("[aborted]")
        chat.type("\x04")
        await chat.shows(f"continue with: turnwire chat --target {served.address} --session ses_")
        assert await chat.ended() == 0
        assert termios.tcgetattr(chat.master)[:4] == chat.before[:4]
    history = tmp_path / ".local/state/turnwire/chat_history"
    assert history.stat().st_mode & 0o777 == 0o600
    assert "+**bold**\n" in history.read_text()


async def test_keys_are_never_echoed_while_output_is_written(served: Server, tmp_path: Path) -> None:
    """From the first line on, so that Enter stays Enter."""
    async with at_terminal([*TURNWIRE, served.address], environ(tmp_path)) as chat:
        await chat.shows("Ctrl-D ends.")
        chat.echoed = False
        chat.type("/rate 200\n/words 100\n\n- one\n- two\n\nlast\r")
        await chat.shows("tokens in")
        chat.type("and on\r")
        await chat.shows("\x1b[1mand on")
        assert not chat.echoed


async def test_no_color_is_obeyed(served: Server, tmp_path: Path) -> None:
    """Everywhere: in answers, in code, in the prompt."""
    text = "\x1b[200~# Title\n\n```python\nx = 1\n```\n\n`code` and [link](http://a)\x1b[201~\r"
    async with at_terminal([*TURNWIRE, served.address], environ(tmp_path, NO_COLOR="1")) as chat:
        await chat.shows("Ctrl-D ends.")
        chat.type(text)
        await chat.shows("tokens in")
        assert COLOURS.search(chat.output) is None
    async with at_terminal([*TURNWIRE, served.address], environ(tmp_path)) as chat:
        await chat.shows("Ctrl-D ends.")
        chat.type(text)
        await chat.shows("tokens in")
        assert COLOURS.search(chat.output)


async def test_a_terminal_that_cannot_move_its_cursor_gets_plain_lines(served: Server, tmp_path: Path) -> None:
    """As one that is called dumb."""
    async with at_terminal([*TURNWIRE, served.address], environ(tmp_path, TERM="dumb")) as chat:
        await chat.shows("> ")
        chat.type("hello\n")
        await chat.shows("\r\nhello\r\n")
        chat.type("\x04")
        assert await chat.ended() == 0
        assert b"\x1b" not in chat.output


async def test_ctrl_c_at_the_question_of_a_single_message_ends_the_turn(asking: Server, tmp_path: Path) -> None:
    """The question is left, and the command ends."""
    message = '/tool test.add {"a": 1, "b": 2}'
    async with at_terminal([*TURNWIRE, asking.address, message], environ(tmp_path)) as chat:
        await chat.shows("allow it?")
        for _ in range(5):  # one that comes between the question and the reading of the answer is heard with the next
            chat.type("\x03")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(5):
                    await chat.shows("[aborted]")
                    break
        assert await chat.ended() == 0
        assert b"[aborted]" in chat.output


async def test_a_session_that_is_not_there_is_told_in_one_line(served: Server, tmp_path: Path) -> None:
    """Exit code 1, before the prompt; so is a server that is not there."""
    for arguments, line in (
        ([*TURNWIRE, served.address, "--session", "ses_no"], "turnwire: NOT_FOUND: session 'ses_no' was not found"),
        ([*TURNWIRE, f"unix:{tmp_path}/none.sock"], "turnwire: no server answers: start one with `turnwire serve`"),
    ):
        async with at_terminal(arguments, environ(tmp_path)) as chat:
            await chat.shows(line)
            assert await chat.ended() == 1
            assert chat.output.count(b"\n") == 1


async def test_through_pipes_there_are_no_escape_codes(served: Server, tmp_path: Path) -> None:
    """Text in, text out, whatever the model writes."""
    chat = await asyncio.create_subprocess_exec(
        *TURNWIRE, served.address, env=environ(tmp_path), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    written, _ = await chat.communicate(b"**bold** \x1b[2J\x1b]0;t\x07 `code`")
    assert (chat.returncode, written) == (0, b"**bold** [2J]0;t `code`\n")
    assert not (tmp_path / ".local").exists()


async def test_a_pipe_gets_the_answer_alone(asking: Server, tmp_path: Path) -> None:
    """Reasoning, tool calls and refused permissions go to standard error."""
    chat = await asyncio.create_subprocess_exec(
        *TURNWIRE,
        asking.address,
        env=environ(tmp_path),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    script = b'/reason hm\n/tool test.add {"a": 1, "b": 2}\n/step\nthe answer'
    written, aside = await chat.communicate(script)
    assert (chat.returncode, written) == (0, b"the answer\n")
    assert aside.startswith(b'reasoning: hm\ntest.add {"a": 1, "b": 2}\n[asks to run test.add')
    assert b"nobody is at the terminal" in aside


def test_the_history_is_cut_to_its_newer_half(tmp_path: Path) -> None:
    """When a chat begins; whole entries stay, of several lines too."""
    variables = {"XDG_STATE_HOME": str(tmp_path)}
    history = open_history(variables)
    for number in range(200):
        history.append_string(f"{number}\n" + "x" * (MAX_BYTES // 150))
    history.append_string("y" * (MAX_ENTRY_CHARS + 1))
    file = tmp_path / "turnwire/chat_history"
    assert file.stat().st_size > MAX_BYTES
    kept = list(open_history(variables).load_history_strings())
    assert MAX_BYTES / 3 < file.stat().st_size < MAX_BYTES
    assert file.stat().st_mode & 0o777 == 0o600
    assert [text.split("\n")[0] for text in kept] == [str(number) for number in range(199, 199 - len(kept), -1)]


def test_a_state_folder_that_cannot_be_used_costs_the_history_alone(tmp_path: Path) -> None:
    """A link to another file is not followed."""
    (tmp_path / "turnwire").mkdir()
    (tmp_path / "other").write_text("kept")
    (tmp_path / "turnwire/chat_history").symlink_to(tmp_path / "other")
    for variables in ({"XDG_STATE_HOME": str(tmp_path)}, {"HOME": "/dev/null"}, {"XDG_STATE_HOME": "relative"}, {}):
        open_history(variables).append_string("typed")
    assert (tmp_path / "other").read_text() == "kept"
