"""`turnwire chat` as a person runs it: a real process at a pseudo terminal, or with pipes, and a real server."""

import asyncio
import contextlib
import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from opencode.tool.tool_pb2 import PermissionResponse
from tests.support.clients.conversation import FOREVER, ask, new_session, talk
from tests.support.servers.mcp import ENVIRON, asker, ready, stdio
from tests.support.servers.process import ServerProcess
from tests.support.servers.running import Client, connect, running_server
from turnwire.app import Server

pytestmark = pytest.mark.slow

TURNWIRE = [sys.executable, "-m", "turnwire", "chat", "--target"]
OWN_TERMINAL = [
    sys.executable,
    "-c",
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])",
]
"""Makes its standard input the terminal of its session, so that Ctrl-C is a signal, and then is another command."""

ADD = '/tool test.add {"a": 2, "b": 3}'
CTRL_C, CTRL_D = "\x03", "\x04"
BEGUN = "\x1b[200~begun\n/sleep 600\x1b[201~\r"
"""A message of two lines, as terminals send what is pasted: an answer that begins and does not end."""

PATIENCE_SECONDS = 200
OF_READLINE = re.compile(r"\x1b\[\?2004[hl]|\x1b\[\?1034h|\r")
"""Escape codes of the line editor: it asks the terminal to mark what is pasted."""


class AtTerminal:
    """A command at a pseudo terminal."""

    def __init__(self, arguments: list[str], folder: Path) -> None:
        """Starts it."""
        self._master, slave = pty.openpty()
        self._process = subprocess.Popen(
            [*OWN_TERMINAL, *arguments],
            env=environ(folder),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self._output = b""
        self._seen = 0
        self._grew = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._master, self._read)

    @property
    def everything(self) -> str:
        """All that was written, without what the line editor says to the terminal."""
        return OF_READLINE.sub("", self._output.decode(errors="replace"))

    def type(self, keys: str) -> None:
        """Presses keys; Enter is a carriage return, and a lone surrogate the byte for which it stands."""
        os.write(self._master, keys.encode(errors="surrogateescape"))

    async def interrupt(self, *texts: str) -> None:
        """Presses Ctrl-C until the texts are shown: one just before a line is read is heard with the next key."""
        for _ in range(5):
            self.type(CTRL_C)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(5):
                    await self.shows(*texts)
                    return
        raise AssertionError(f"{texts!r} did not come: {self.everything!r}")

    async def shows(self, *texts: str) -> str:
        """Waits until the texts were written in this order, behind those of the last time. Returns what came."""
        pattern = re.compile(".*?".join(map(re.escape, texts)), re.DOTALL)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not (found := pattern.search(self.everything, self._seen)):
                    self._grew.clear()
                    await self._grew.wait()
        except TimeoutError:
            raise AssertionError(f"{texts!r} did not come: {self.everything!r}") from None
        before, self._seen = self._seen, found.end()
        return self.everything[before : found.end()]

    async def ended(self) -> int:
        """Waits for the end and returns the exit code."""
        return await asyncio.to_thread(self._process.wait, 100)

    def close(self) -> None:
        """Ends what still runs."""
        self._process.kill()
        self._process.wait()
        asyncio.get_running_loop().remove_reader(self._master)
        os.close(self._master)

    def _read(self) -> None:
        try:
            new = os.read(self._master, 65536)
        except OSError:  # what Linux says when the other end is closed
            new = b""
        if not new:
            asyncio.get_running_loop().remove_reader(self._master)
        self._output += new
        self._grew.set()


def environ(folder: Path) -> dict[str, str]:
    """Returns the environment of a person with a home of their own."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("TURNWIRE_", "XDG_"))}
    return {**clean, "HOME": str(folder), "TERM": "xterm-256color", "INPUTRC": "/dev/null"}


@contextlib.asynccontextmanager
async def chatting(folder: Path, address: str, *more: str, before: Sequence[str] = ()) -> AsyncIterator[AtTerminal]:
    """Runs the chat at a terminal, behind the words of another command, and ends it with the block."""
    running = AtTerminal([*before, *TURNWIRE, address, *more], folder)
    try:
        yield running
    finally:
        running.close()


async def piped(folder: Path, address: str, text: str, *more: str) -> tuple[int | None, str, str]:
    """Runs the chat with a text from a pipe. Returns its exit code, its output and what it wrote aside."""
    pipe = subprocess.PIPE
    command = [*TURNWIRE, address, *more]
    chat = await asyncio.create_subprocess_exec(*command, env=environ(folder), stdin=pipe, stdout=pipe, stderr=pipe)
    written, aside = await chat.communicate(text.encode(errors="surrogateescape"))
    return chat.returncode, written.decode(), aside.decode()


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """A server with tools that ask for permission, and with tools that ask people."""
    folder = tmp_path_factory.mktemp("chat")
    tools = stdio(folder) + asker() + asker("old", 'protocol = "handshake"')
    async with running_server(folder, f'{tools}[permissions]\n"test.*" = "ask"\n', ENVIRON) as running:
        yield running


@pytest.fixture(scope="module")
async def other(served: Server) -> AsyncIterator[Client]:
    """Another client of that server."""
    async with connect(served.address) as connected:
        await ready(connected)
        yield connected


@pytest.fixture
async def chat(served: Server, other: Client, tmp_path: Path) -> AsyncIterator[AtTerminal]:
    """A chat that has just begun."""
    async with chatting(tmp_path, served.address) as begun:
        await begun.shows("Ctrl-D the chat.", "> ")
        yield begun


async def test_what_is_typed_is_sent_and_the_answer_printed(chat: AtTerminal, served: Server, tmp_path: Path) -> None:
    """No first character and no answer of the model changes that. The last line says how to go on."""
    chat.type("**bold** \x16\x1b[2J `code`\r")
    await chat.shows("\n**bold** [2J `code`\n> ")
    chat.type("/reason let me see\r")
    await chat.shows("\nreasoning: let me see\n", "> ")
    chat.type(CTRL_D)
    again = await chat.shows("continue with: turnwire chat --target", "\n")
    assert await chat.ended() == 0
    session = again.split()[-2:]
    async with chatting(tmp_path, served.address, *session) as resumed:
        await resumed.shows("> **bold**", "\n**bold**", "reasoning: let me see\n", "> ")


async def test_ctrl_c_ends_the_answer_and_the_chat_goes_on(chat: AtTerminal) -> None:
    """The text so far stays. At the prompt it gives up the line, of which nothing is sent."""
    chat.type("unsent")
    await chat.shows("unsent")
    await chat.interrupt("\n> ")
    chat.type(BEGUN)
    await chat.shows("/sleep 600\nbegun")
    chat.type(CTRL_C)
    await chat.shows("[aborted]\n> ")
    chat.type("again\r")
    await chat.shows("\nagain\n> ")


async def test_a_permission_is_asked_and_answered(chat: AtTerminal) -> None:
    """Neither a line typed before the question nor a small a is an answer to it; "?" shows everything."""
    chat.type(f"{ADD}\ry\r")
    await chat.shows('test.add {"a": 2, "b": 3}\n', '[asks to run test.add {"a": 2, "b": 3}]', "allow it?")
    chat.type("a\r")
    await chat.shows("allow it?")
    chat.type("?\r")
    await chat.shows('{"arguments":{"a": 2, "b": 3}}\nalways allows: test.add\n', "allow it?")
    chat.type("n not today\r")
    await chat.shows("test.add -> failed: ", "not today", "> ")
    chat.type(f"{ADD}\r")
    await chat.shows("allow it?")
    chat.type("y\r")
    await chat.shows("test.add -> the sum is 5\n", "> ")
    chat.type(f"{ADD}\r")
    await chat.shows("allow it?")
    chat.type("A\r")
    await chat.shows("test.add -> the sum is 5\n", "> ")
    chat.type(f"{ADD}\r")
    assert "allow it?" not in await chat.shows("test.add -> the sum is 5\n", "> ")


async def test_ctrl_c_at_a_question_ends_the_turn(served: Server, other: Client, tmp_path: Path) -> None:
    """The question is left; a command with a single message ends."""
    async with chatting(tmp_path, served.address, ADD) as single:
        await single.shows("allow it?")
        await single.interrupt("[aborted]\n")
        assert await single.ended() == 0


async def test_a_form_is_answered_by_an_object(chat: AtTerminal) -> None:
    """Its schema is shown. Other text asks again, and so does an object that the server refuses."""
    chat.type("/tool old.order {}\r")
    await chat.shows("[old asks]", "do you drink?", "the schema of the answer: {", '"name"', "an object in JSON")
    chat.type("y\r")
    await chat.shows("an object in JSON")
    chat.type('{"name": "an", "size": "l", "hot": true}\r')
    await chat.shows("does not fit the question: name: ", "an object in JSON")
    sent = '{"name": "Ann", "size": "l", "with": ["milk", "sugar"], "price": 2.5, "hot": true}'
    chat.type(f"{sent}\r")
    await chat.shows(f"accept: {sent}", "> ")


async def test_questions_are_declined_and_addresses_agreed_to(chat: AtTerminal) -> None:
    """The end of the input declines a form. An address is shown whole, and the chat never opens it."""
    chat.type('/tool ask.paint {"what": "the door"}\r')
    await chat.shows("Which colour for the door?", "Name of a colour", "an object in JSON")
    chat.type(CTRL_D)
    await chat.shows("ask.paint -> not painted: decline\n", "> ")
    link = "x" * 300
    chat.type(f'/tool old.connect {{"link": "{link}"}}\r')
    await chat.shows("Connect your account", f"https://example.com/connect/{link}\n", "agree?")
    chat.type("perhaps\r")
    await chat.shows("agree?")
    chat.type("y\r")
    await chat.shows("link: accept", "> ")


async def test_a_resumed_session_asks_what_is_open(served: Server, other: Client, tmp_path: Path) -> None:
    """Also when another client sent the message; one that answers first is told."""
    session_id = await new_session(other)
    await talk(other, "before", session_id)
    await other.messages.SendMessage(ask(f"I look.\n{ADD}", session_id))
    while not (await other.permissions.ListPermissions(session_id=session_id)).permissions:
        await asyncio.sleep(0.01)
    async with chatting(tmp_path, served.address, "--session", session_id) as chat:
        await chat.shows("> before\nbefore\n> I look.", "\nI look.\n", "[asks to run test.add", "allow it?")
        listed = await other.permissions.ListPermissions(session_id=session_id)
        answer = PermissionResponse(session_id=session_id, permission_id=listed.permissions[0].id, response="once")
        await other.permissions.RespondToPermission(answer)
        chat.type("n\r")
        await chat.shows("was answered: once]", "-> the sum is 5\n", "> ")
        assert chat.everything.count("\nI look.\n") == 1


async def test_an_answer_goes_on_without_the_chat(served: Server, other: Client, tmp_path: Path) -> None:
    """A message that waits is told, and is there when the chat is gone."""
    session_id = await new_session(other)
    await other.messages.SendMessage(ask(FOREVER, session_id))
    async with chatting(tmp_path, served.address, "--session", session_id, "next") as chat:
        await chat.shows("[waits at place 1]")
    aborted = await other.messages.AbortSession(session_id=session_id)
    assert aborted.turn_id and aborted.dropped_message_ids


async def test_the_chat_survives_a_server_that_is_killed(tmp_path: Path) -> None:
    """It says so, follows the session again, and the conversation goes on. A pipe does not wait."""
    server = await ServerProcess.start(tmp_path)
    try:
        async with chatting(tmp_path, server.address) as chat:
            await chat.shows("> ")
            chat.type(BEGUN)
            await chat.shows("/sleep 600\nbegun")
            await server.kill()
            await chat.shows("[connection lost, trying again:")
            chat.type(CTRL_C)  # before the turn ends, or it would end the next line
            server = await ServerProcess.start(tmp_path, listen=server.address)
            await chat.shows("]\n> ")
            chat.type("still there?\r")
            await chat.shows("\nstill there?\n> ")
    finally:
        await server.kill()
    code, written, aside = await piped(tmp_path, server.address, "hello")
    assert (code, written, aside.count("\n")) == (1, "", 1)
    assert aside.startswith("turnwire: no server answers: start one with `turnwire serve`")


async def test_a_session_that_is_not_there_is_told_in_one_line(served: Server, tmp_path: Path) -> None:
    """Exit code 1, before the prompt."""
    async with chatting(tmp_path, served.address, "--session", "ses_no") as chat:
        await chat.shows("turnwire: NOT_FOUND: session 'ses_no' was not found\n")
        assert await chat.ended() == 1
        assert chat.everything.count("\n") == 1


async def test_a_pipe_gets_the_answer_alone(served: Server, other: Client, tmp_path: Path) -> None:
    """Reasoning and tool calls go to standard error. Nobody can be asked: permissions and questions are refused."""
    script = f'/reason hm\n{ADD}\n/tool ask.paint {{"what": "it"}}\n/step\n**the** \x1b[2Janswer\x1b]0;t\x07'
    code, written, aside = await piped(tmp_path, served.address, script)
    assert (code, written) == (0, "**the** [2Janswer]0;t\n")
    assert aside.startswith(f"reasoning: hm\n{ADD.removeprefix('/tool ')}\n")
    assert "nobody is at the terminal" in aside
    assert "[ask asks]\nWhich colour for it?\n" in aside
    assert "ask.paint -> not painted: decline" in aside
    assert list(tmp_path.iterdir()) == []


async def test_what_is_not_utf_8_is_told_in_one_line(served: Server, other: Client, tmp_path: Path) -> None:
    """From a pipe or as words of the command: nothing is sent."""
    told = (1, "", "turnwire: the text is not UTF-8\n")
    assert await piped(tmp_path, served.address, "a\udcff") == told
    assert await piped(tmp_path, served.address, "", "a\udcff") == told


async def test_a_line_that_is_not_utf_8_is_asked_for_again(chat: AtTerminal) -> None:
    """The chat goes on, also where a tool is answered."""
    chat.type("a\udcff\r")
    await chat.shows("[that was not UTF-8]\n> ")
    chat.type(f"{ADD}\r")
    await chat.shows("allow it?")
    chat.type("no a\udcff\r")
    await chat.shows("[that was not UTF-8]\n", "allow it?")
    chat.type("no\r")
    await chat.shows("> ")


async def test_a_file_gets_the_answers_alone(served: Server, tmp_path: Path) -> None:
    """The prompt and everything else stay at the terminal."""
    answers = tmp_path / "answers"
    async with chatting(tmp_path, served.address, before=["/bin/sh", "-c", f'"$0" "$@" > {answers}']) as chat:
        await chat.shows("Ctrl-D the chat.\n", "> ")
        chat.type("/reason hm\rhello\r")
        await chat.shows("reasoning: hm", "> ", "> ")
        chat.type(CTRL_D)
        await chat.shows("\ncontinue with: turnwire chat")
        assert await chat.ended() == 0
    assert answers.read_text() == "hello\n"


@pytest.mark.parametrize(
    ("redirected", "told"),
    [
        ("hello <&-", ""),
        ("<&-", "turnwire: nothing to send\n"),
        pytest.param(
            "hello > /dev/full",
            "turnwire: cannot write the answer: No space left on device\n",
            marks=pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full"),
        ),
    ],
)
async def test_streams_that_are_closed_or_full_are_told_in_one_line(
    served: Server, tmp_path: Path, redirected: str, told: str
) -> None:
    """As those of a service often are."""
    command = f"{shlex.join([*TURNWIRE, served.address])} {redirected}"
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", command), env=environ(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    output, errors = await process.communicate()
    assert errors.decode() == told
    assert (process.returncode, output) == ((1, b"") if told else (0, b"hello\n"))
