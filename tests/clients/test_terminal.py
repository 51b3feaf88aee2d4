"""The terminal program does what docs/guides/terminal.md says, in a real terminal (tmux) and against a real server.

Its modules are downloaded, so this runs only with TURNWIRE_TEST_GO=1.
"""

import asyncio
import os
import pty
import re
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import pytest

from opencode.message.message_pb2 import (
    ListMessagesRequest,
    MessagePart,
    SendMessageRequest,
    TextPart,
)
from opencode.session.session_pb2 import (
    SESSION_STATUS_IDLE,
    CreateSessionRequest,
    GetSessionRequest,
    ListSessionsRequest,
    SessionSettings,
)
from opencode.tool.tool_pb2 import ToolDefinition
from tests.support.clients.terminal import Terminal, terminal
from tests.support.servers.mcp import asker, ready
from tests.support.servers.process import ServerProcess
from tests.support.servers.running import Client, connect
from tests.support.servers.serving import serving

PROGRAM = Path(__file__).parents[2] / "clients/go/cmd/turnwire"
CONFIGURATION = '[permissions]\n"erase" = "ask"\n'
SLOW = "/rate 4\n/words 400"
"""Answered for longer than any test lasts."""


def _skipped() -> str:
    """Returns why these tests do not run; "" when they do."""
    if os.environ.get("TURNWIRE_TEST_GO") != "1":
        return "downloads modules: TURNWIRE_TEST_GO=1"
    missing = [tool for tool in ("go", "tmux") if shutil.which(tool) is None]
    return f"not installed: {', '.join(missing)}" if missing else ""


pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(_skipped()), reason=_skipped()), pytest.mark.timeout(900)]


def go(*arguments: str, **environ: str) -> str:
    """Runs a command of Go in the program's folder; what it printed."""
    done = subprocess.run(
        ["go", *arguments],
        cwd=PROGRAM,
        env={**os.environ, **environ},
        check=False,
        capture_output=True,
        text=True,
        timeout=800,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The program, built as a release builds it: one file without C."""
    binary = tmp_path_factory.mktemp("program") / "turnwire"
    go("build", "-trimpath", "-ldflags", "-s -w -X main.version=1.2.3", "-o", str(binary), ".", CGO_ENABLED="0")
    return str(binary)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ServerProcess]:
    """A server with a tool that asks for permission."""
    started = await ServerProcess.start(tmp_path, CONFIGURATION)
    yield started
    await started.kill()


@pytest.fixture
async def other(server: ServerProcess) -> AsyncIterator[Client]:
    """Another client of that server."""
    async with connect(server.address) as connected:
        yield connected


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a short path, for sockets."""
    with tempfile.TemporaryDirectory(prefix="tw") as folder:
        yield Path(folder)


@pytest.fixture
async def screen(program: str, server: ServerProcess, short: Path) -> AsyncIterator[Terminal]:
    """The program, which shows an empty session."""
    with terminal(short, [program, "--address", server.address]) as shown:
        await shown.shows("Write a message below")
        yield shown


async def session(other: Client, title: str = "", *, tool: str = "") -> str:
    """Creates a session, with a client tool if one is named; returns its id."""
    settings = SessionSettings(tools=[ToolDefinition(name=tool)] if tool else [])
    return (await other.sessions.CreateSession(CreateSessionRequest(title=title, settings=settings))).id


async def say(other: Client, session_id: str, text: str) -> str:
    """Sends a message as another client; returns its id."""
    request = SendMessageRequest(session_id=session_id, parts=[MessagePart(text=TextPart(text=text))])
    return (await other.messages.SendMessage(request)).message_id


async def answered(other: Client, session_id: str, text: str) -> None:
    """Sends a message as another client, and waits until it is answered."""
    await say(other, session_id, text)
    async with asyncio.timeout(20):
        while len(await texts(other, session_id)) < 2 or await running(other, session_id):
            await asyncio.sleep(0.02)


async def running(other: Client, session_id: str) -> bool:
    """Returns whether a turn runs in a session."""
    answer = await other.sessions.GetSession(GetSessionRequest(session_id=session_id))
    return answer.session.status != SESSION_STATUS_IDLE


async def texts(other: Client, session_id: str) -> list[str]:
    """Returns the texts of the messages of a session."""
    answer = await other.messages.ListMessages(ListMessagesRequest(session_id=session_id))
    return ["".join(part.text.text for part in message.parts) for message in answer.messages]


def test_program_is_vetted_and_tested(tmp_path: Path) -> None:
    """`go vet` has nothing to say, gofmt would change nothing, go.mod is tidy, and its own tests pass."""
    go("vet", "./...")
    go("mod", "tidy", "-diff")
    unformatted = subprocess.run(["gofmt", "-l", "."], cwd=PROGRAM, check=True, capture_output=True, text=True)
    assert unformatted.stdout == ""
    assert "FAIL" not in go("test", "-count=1", "./...")


def test_one_static_file(program: str) -> None:
    """Nothing is loaded with it, and it says its version."""
    listed = subprocess.run(["go", "version", "-m", program], check=True, capture_output=True, text=True)
    assert "CGO_ENABLED=0" in listed.stdout
    assert b"ld-linux" not in Path(program).read_bytes()[:4096]
    version = subprocess.run([program, "--version"], check=True, capture_output=True, text=True)
    assert version.stdout == "turnwire-terminal 1.2.3\n"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--help"], 0, "--token-file FILE"),
        (["--token", "secret"], 2, "flag provided but not defined: -token"),
        (["more"], 2, "there is no argument"),
        (["--tls-ca", "/nowhere.pem"], 2, "--tls-ca"),
        (["--address", "chat.example.com:1", "--token-file", "TOKEN"], 2, "TLS"),
        ([], 3, "for a terminal"),
    ],
)
def test_exit_codes(program: str, tmp_path: Path, arguments: list[str], code: int, says: str) -> None:
    """Each has its own, and one line says why. No token is repeated."""
    (tmp_path / "TOKEN").write_text("twt_secret\n")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TURNWIRE_")}
    done = subprocess.run(
        [program, *arguments],
        cwd=tmp_path,
        env=environ,
        stdin=subprocess.DEVNULL,
        check=False,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert (done.returncode, says in done.stdout + done.stderr) == (code, True), done.stderr
    assert done.stderr.count("\n") == (0 if code == 0 else 1)
    assert "twt_secret" not in done.stdout + done.stderr


async def test_no_server(program: str, short: Path) -> None:
    """A person reads in one line that nobody answers, and the code says so."""
    with terminal(short, [program, "--address", "127.0.0.1:1"]) as shown:
        said = await shown.shows("ended 1")
    assert "127.0.0.1:1: " in said


async def test_no_such_session(program: str, server: ServerProcess, short: Path) -> None:
    """A session that is not there ends the program with the server's reason."""
    with terminal(short, [program, "--address", server.address, "--session", "ses_none"]) as shown:
        assert "SESSION_NOT_FOUND" in await shown.shows("ended 1")


async def test_send_and_stream(screen: Terminal, other: Client) -> None:
    """A message of several lines goes out, its answer is shown while it comes, and the session is in the list."""
    screen.type("/rate 30")
    screen.press("C-j")
    screen.type("**One** two 世界 and the end.")
    screen.press("Enter")
    await screen.shows("● Assistant offline/echo")
    shown = await screen.shows(lambda now: now.count("One two 世界 and the end.") == 1 and " out" in now)
    assert "**One** two 世界" in shown, "what a person typed is shown as it was typed"
    assert "**One** two 世界 and the end." in shown.splitlines()[0], "the session has the words as its title"
    screen.press("C-d")
    await screen.shows("ended 0")


async def test_paste_keeps_its_lines(screen: Terminal, other: Client) -> None:
    """A pasted text with line ends is one message."""
    screen.paste("first line\nsecond line\n  third line")
    await screen.shows("third line")
    assert "● You" not in screen.screen()
    screen.press("Enter")
    await screen.shows("● Assistant")
    (listed,) = (await other.sessions.ListSessions(ListSessionsRequest())).sessions
    await screen.shows(" out")
    assert (await texts(other, listed.id))[0] == "first line\nsecond line\n  third line"


async def test_abort_keeps_what_came(screen: Terminal) -> None:
    """Ctrl-C ends the answer, not the program."""
    screen.type("/rate 10")
    screen.press("C-j")
    screen.type("/words 500")
    screen.press("Enter")
    await screen.shows("answering…")
    await screen.shows("writing…")
    screen.press("C-c")
    await screen.shows("aborted")
    await screen.gone("answering…")


async def test_approve_and_deny(program: str, server: ServerProcess, other: Client, short: Path) -> None:
    """A permission is shown with its call, keys that are typed are no answer, and y and n answer."""
    created = await session(other, "Tools", tool="erase")
    with terminal(short, [program, "--address", server.address, "--session", created]) as shown:
        await shown.shows("Tools")
        await say(other, created, '/tool erase {"path": "all of it"}\n/step\nWell.')
        asked = await shown.shows("ctrl+y answers")
        assert "erase" in asked
        assert "all of it" in asked
        shown.type("y is a letter")
        await shown.shows("> y is a letter")
        assert "ctrl+y answers" in shown.screen()
        shown.press("C-y")
        await shown.shows("y once")
        await _after_guard()
        shown.press("y")
        await shown.shows("waits for the client that runs it")
        await say(other, created, "later")
        shown.press("C-c")
        await shown.shows("later")
        await say(other, created, '/tool erase {"path": "again"}')
        await shown.shows("again")
        await shown.shows("ctrl+y answers")
        shown.press("C-y")
        await shown.shows("y once")
        await _after_guard()
        shown.press("r")
        shown.type("it is mine")
        shown.press("Enter")
        await shown.shows("it is mine")
        await shown.gone("ctrl+y answers")


async def test_always_is_a_capital_as_in_the_console(
    program: str, server: ServerProcess, other: Client, short: Path
) -> None:
    """A small a answers nothing, a capital one allows this call and the next."""
    created = await session(other, "Tools", tool="erase")
    with terminal(short, [program, "--address", server.address, "--session", created]) as shown:
        await shown.shows("Tools")
        await say(other, created, '/tool erase {"path": "one"}\n/tool erase {"path": "two\\nlines"}')
        await shown.shows("ctrl+y answers")
        shown.press("C-y")
        await shown.shows("A always (erase)")
        await _after_guard()
        shown.press("a")
        shown.press("?")
        await shown.shows("What would run")
        shown.press("Escape")
        await shown.shows("A always (erase)")
        shown.press("A")
        await shown.shows(lambda screen: screen.count("waits for the client that runs it") == 2)


async def test_a_form_is_filled_in(program: str, tmp_path: Path, short: Path) -> None:
    """A tool that asks gets what a person filled in, and a value that the server refuses can be changed."""
    server = await ServerProcess.start(tmp_path, asker())
    try:
        async with connect(server.address) as other:
            await ready(other)
        with terminal(short, [program, "--address", server.address]) as shown:
            await shown.shows("Write a message below")
            shown.type('/tool ask.paint {"what": "the door"}')
            shown.press("Enter")
            await shown.shows("Which colour for the door?")
            shown.press("C-y")
            await shown.shows("1/2 Colour")
            await _after_guard()
            shown.type("blue")
            shown.press("Enter")
            await shown.shows("2/2 Coats")
            shown.press("C-u")
            shown.type("9")
            shown.press("Enter")
            await shown.shows("Coats: 9")
            shown.press("y")
            await shown.shows("9 is greater than the maximum of 5")
            await _after_guard()
            shown.press("b", "Enter")
            await shown.shows("2/2 Coats")
            shown.press("C-u")
            shown.type("3")
            shown.press("Enter")
            await shown.shows("Coats: 3")
            shown.press("y")
            await shown.shows("the door is blue, 3 times")
    finally:
        await server.kill()


async def test_queue(screen: Terminal) -> None:
    """Messages that wait are shown, changed, moved and taken out."""
    screen.type(SLOW.split("\n", 1)[0])
    screen.press("C-j")
    screen.type(SLOW.split("\n", 1)[1])
    screen.press("Enter")
    await screen.shows("answering…")
    for word in ("alpha", "beta", "gamma"):
        screen.type(word)
        screen.press("Enter")
        await screen.shows(f"waits: {word}")
    screen.press("C-g", "Down", "K")
    await screen.shows(lambda now: _order(now) == ["beta", "alpha", "gamma"])
    screen.press("d")
    await screen.shows(lambda now: _order(now) == ["alpha", "gamma"])
    screen.press("e")
    await screen.shows("> alpha")
    screen.type(" changed")
    screen.press("Enter")
    await screen.shows("waits: alpha changed")


def _order(screen: str) -> list[str]:
    """Returns the messages that wait, as the screen shows them."""
    return re.findall(r"waits: (\w+)", screen)


async def test_interrupt_and_steer(screen: Terminal) -> None:
    """Ctrl-X ends the answer and is answered next; Ctrl-S waits as a message that steers."""
    screen.type("/rate 4")
    screen.press("C-j")
    screen.type("/words 400")
    screen.press("Enter")
    await screen.shows("writing…")
    screen.type("turn left")
    screen.press("C-s")
    await screen.shows("steers: turn left")
    screen.type("stop it")
    screen.press("C-x")
    await screen.shows("aborted")
    await screen.shows(lambda now: "stop it" in now and now.index("aborted") < now.rindex("stop it"))


def _said(screen: str, text: str) -> int:
    """Counts a text in the conversation, without the titles in the list and at the top: they are first words."""
    return sum(line.partition("│")[2].count(text) for line in screen.splitlines())


async def test_regenerate_and_alternatives(screen: Terminal) -> None:
    """An answer is made again, and the one before is a key away."""
    screen.type("hello there")
    screen.press("Enter")
    await screen.shows(lambda now: _said(now, "hello there") == 2 and " out" in now)
    screen.press("C-p", "r")
    await screen.shows("‹2 of 2›")
    await screen.gone("answering…")
    screen.press("C-p", "Left")
    await screen.shows("‹1 of 2›")


async def test_search_rename_archive_delete(screen: Terminal, other: Client) -> None:
    """A message is found by its words; a session gets a title, is put away, and goes after a yes."""
    created = await session(other, "Birds")
    await answered(other, created, "the nightingale sings")
    screen.press("C-f")
    screen.type("nightingale")
    screen.press("Enter")
    await screen.shows("2 messages")
    screen.press("Enter")
    await screen.shows("Turnwire Birds")
    screen.press("C-l", "r")
    screen.type(" of prey")
    screen.press("Enter")
    await screen.shows("Turnwire Birds of prey")
    screen.press("a")
    await screen.shows("archived")
    screen.press("A")
    await screen.shows(lambda now: "Archive" in now and "Birds of prey" in now.split("\n", 1)[1])
    screen.press("d")
    await screen.shows('delete "Birds of prey" for ever')
    screen.type("yes")
    screen.press("Enter")
    await screen.shows("deleted")
    with pytest.raises(grpc.aio.AioRpcError, match="was not found"):
        await other.sessions.GetSession(GetSessionRequest(session_id=created))


async def test_what_is_sent_and_what_it_cost(screen: Terminal) -> None:
    """The request to the model and the usage are pages of their own."""
    screen.type("count me")
    screen.press("Enter")
    await screen.shows(" out")
    screen.press("C-t")
    await screen.shows("What the model is sent")
    await screen.shows('"count me"')
    screen.press("Escape")
    await screen.gone("What the model is sent")
    screen.press("C-r")
    await screen.shows("This month, by model")
    await screen.shows("offline/echo: ")


async def test_other_sessions_are_unread(screen: Terminal, other: Client) -> None:
    """What happens elsewhere is seen in the list."""
    created = await session(other, "Elsewhere")
    await say(other, created, "hello")
    await screen.shows("* Elsewhere")
    await say(other, created, SLOW)
    await screen.shows("● Elsewhere")


async def test_server_killed_and_back(program: str, tmp_path: Path, short: Path) -> None:
    """The screen says that the server is gone, goes on when it is back, and sends what was written meanwhile."""
    server = await ServerProcess.start(tmp_path, CONFIGURATION)
    try:
        with terminal(short, [program, "--address", server.address]) as shown:
            await shown.shows("Write a message below")
            shown.type("before")
            shown.press("Enter")
            await shown.shows(lambda now: _said(now, "before") == 2)
            await server.kill()
            await shown.shows("offline")
            shown.type("meanwhile")
            shown.press("Enter")
            await shown.shows("sending 1")
            server = await ServerProcess.start(tmp_path, CONFIGURATION, listen=server.address)
            await shown.shows(lambda now: _said(now, "meanwhile") == 2 and "online" in now, 60)
            assert _said(shown.screen(), "before") == 2
    finally:
        await server.kill()


@pytest.mark.parametrize(("columns", "lines"), [(60, 20), (30, 12), (12, 5), (3, 2), (200, 60)])
async def test_every_size(screen: Terminal, columns: int, lines: int) -> None:
    """The program works in every size, and no line is longer than the window."""
    screen.type("wide 世界 words " * 6)
    screen.press("Enter")
    await screen.shows("● Assistant")
    screen.resize(columns, lines)
    if columns >= 12:
        await screen.shows(lambda now: "ended" not in now and "words" in now)
    screen.press("Tab", "Tab", "Up", "F1", "F1", "C-f", "C-f", "C-l", "Tab")
    screen.resize(100, 30)
    await screen.shows(lambda now: "Turnwire" in now and "Assistant offline/echo" in now)


async def test_hostile_text_cannot_forge_the_screen(screen: Terminal, other: Client) -> None:
    """What a model writes sets no title, moves no cursor, and looks like no other message."""
    hostile = "\x1b]0;owned\x07\x1b[2J\x1b[1;1Hforged\r● You 00:00\nuser\u202egnp.exe &#27;[31mred"
    hostile += "\n\n```\n\x1b[5n\x9b31m\n```"
    created = await session(other, "Hostile")
    await answered(other, created, hostile)
    screen.press("C-f")
    screen.type("gnp.exe")
    screen.press("Enter")
    await screen.shows("2 messages")
    screen.press("Enter")
    shown = await screen.shows(lambda now: now.count("⟨U+202E⟩") == 2)
    assert screen.title() != "owned"
    forged = [line for line in shown.splitlines() if "You 00:00" in line]
    assert forged
    for line in forged:
        assert not re.search(r"(^|│ )● You 00:00", line), line


def test_only_known_sequences_reach_the_terminal(program: str, tmp_path: Path) -> None:
    """The bytes that the program writes have no colours with NO_COLOR, and no sequence that a text brought."""
    with serving(tmp_path, "") as address:
        written = _typed(
            [program, "--address", address],
            b"say \xc2\x9b31m\xe2\x80\xaeand `code`\r",
            until="⟨U+202E⟩and code",
        )
    assert "\x1b]0;" not in written
    assert "\x9b" not in written
    assert not re.search(r"\x1b\[[0-9;]*(3[0-7]|4[0-7]|9[0-7])m", written)


def _typed(command: list[str], keys: bytes, until: str) -> str:
    """Runs a program on a pseudo-terminal without colours, types, waits for a text; returns all that it wrote."""
    process, terminal_file = pty.fork()
    if process == 0:
        environ = {**os.environ, "NO_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
        os.execvpe(command[0], command, environ)
    written = b""
    typed = False
    deadline = time.monotonic() + 30
    try:
        while time.monotonic() < deadline and until not in written.decode(errors="replace"):
            if select.select([terminal_file], [], [], 0.1)[0]:
                written += os.read(terminal_file, 65536)
            if not typed and b"Write a message" in written:
                os.write(terminal_file, keys)
                typed = True
    finally:
        os.write(terminal_file, b"\x11")  # Ctrl-Q
        os.waitpid(process, 0)
        os.close(terminal_file)
    text = written.decode(errors="replace")
    assert until in text, text[-2000:]
    return text


async def _after_guard() -> None:
    """Lets the moment pass in which a request that has just come takes no answer: there is nothing else to await."""
    await asyncio.sleep(0.6)
