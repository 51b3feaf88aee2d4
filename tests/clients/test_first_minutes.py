"""The examples for the first five minutes do what docs/quickstart/server.md says of them, against a real server.

The bot is built with Go, whose packages are downloaded, so it runs only with TURNWIRE_TEST_GO=1. The web page runs in
Chromium with TURNWIRE_TEST_BROWSER=1; what it sends is tried without a browser, too.
"""

import asyncio
import json
import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Condition, Thread
from typing import Any
from urllib.parse import parse_qs
from urllib.request import Request, urlopen

import aiohttp
import pytest

from opencode.message.content_pb2 import MESSAGE_TYPE_USER
from opencode.session.session_pb2 import ListSessionsRequest
from tests.support.clients.chromium import browser
from tests.support.clients.conversation import messages_of, words_of
from tests.support.servers.mcp import own_port
from tests.support.servers.running import connect
from tests.support.servers.serving import serving
from turnwire.config import load_config

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PAGE = (ROOT / "docs/quickstart/server.md").read_text()
WORLDS = "één twee 世界 🌍"
SECRET = "between us"
PATIENCE_SECONDS = 200


def gate(variable: str, *tools: str) -> pytest.MarkDecorator:
    """Marks a test that runs when it is asked for, with the tools that it needs."""
    if os.environ.get(variable) != "1":
        return pytest.mark.skip(f"runs with {variable}=1")
    if missing := [tool for tool in tools if shutil.which(tool) is None]:
        return pytest.mark.skip(f"not installed: {', '.join(missing)}")
    return pytest.mark.timeout(600)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """The address of a fresh server."""
    with serving(tmp_path) as address:
        yield address


def test_page_names_the_examples() -> None:
    """Each of them, in the section for the first five minutes."""
    section = PAGE.split("## First five minutes")[1].split("\n## ")[0]
    for name in ("examples/web/index.html", "examples/bot", "examples/python/notebook.py", "examples/bridge/bridge.py"):
        assert f"](../../{name})" in section


def test_page_and_configuration_name_the_same_addresses() -> None:
    """Of the page, and of the server that it calls when its address names none."""
    config = load_config(EXAMPLES / "web/turnwire.toml", {})
    assert f'"http://{config.web.listen}"' in (EXAMPLES / "web/index.html").read_text()
    assert "<http://127.0.0.1:8000>" in PAGE
    assert "http://127.0.0.1:8000" in config.web.allowed_origins


def test_web_page_runs_beside_the_server_of_make_serve(tmp_path: Path) -> None:
    """Both are on the page, one after the other: they share no port and no file."""
    makefile = (ROOT / "Makefile").read_text()
    usual = load_config(None, {}, {"--web": re.search(r"--web ([\d.:]+)", makefile)[1]})  # type: ignore[index]
    config = load_config(EXAMPLES / "web/turnwire.toml", {})
    assert len({usual.server.listen, usual.web.listen, config.server.listen, config.web.listen}) == 4
    assert config.storage.path.absolute() != usual.storage.path.absolute()
    assert config.storage.path.parent == EXAMPLES / "web"


def test_notebook_talks_calls_and_fails(served: str) -> None:
    """Each cell prints what its heading says."""
    command = [sys.executable, str(EXAMPLES / "python/notebook.py"), served]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("Connected to Turnwire ")
    assert lines[1] == "Hello from a notebook."
    assert "mean returned: 3.0" in done.stdout
    assert "Failed: PROVIDER_CONTEXT_FULL" in lines
    kinds = [line.split(" | ")[0] for line in lines if " | " in line]
    assert (kinds.count("user"), {*kinds} - {"host"}) == (3, {"user", "assistant"})


@gate("TURNWIRE_TEST_GO", "go")
def test_bot_calls_its_function(served: str, tmp_path: Path) -> None:
    """Each line is a message of one conversation; the model calls the function, which refuses what makes no sense."""
    program = tmp_path / "bot"
    subprocess.run(["go", "build", "-o", str(program), "."], cwd=EXAMPLES / "bot", check=True, timeout=500)
    lines = f'{WORLDS}\n/tool roll {{"sides": 1}}\n/tool roll {{"sides": 0}}\n'
    done = subprocess.run([program, served], input=lines, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{WORLDS}\n")
    assert "a dice with 1 sides shows 1" in done.stdout
    assert "a dice has at least one side" in done.stdout
    assert '/tool roll {"sides": 6}' in done.stderr
    alone = subprocess.run(
        [program, "127.0.0.1:1"], input="a\n", check=False, capture_output=True, text=True, timeout=60
    )
    assert alone.returncode == 1
    assert alone.stderr.count("\n") == 2  # what to type, and why it ended


class ChatService:
    """Stands in for a chat service: knows names, keeps what is posted, and delivers events."""

    def __init__(self) -> None:
        """Knows two people."""
        self.names = {"U1": "Ada Lovelace", "U2": "Émilie du Châtelet"}
        self.posts: dict[str, str] = {}
        """What was posted, by its time stamp."""
        self.refused = 0
        self.changed = Condition()
        service = self

        class Api(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                size = int(self.headers["content-length"])
                given = {name: values[0] for name, values in parse_qs(self.rfile.read(size).decode()).items()}
                answer = json.dumps(service.answer(self.path.removeprefix("/api/"), given, self.headers)).encode()
                self.send_response(200)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Api)

    def answer(self, method: str, given: dict[str, str], headers: Any) -> dict[str, Any]:
        """Carries out a call of the bridge."""
        with self.changed:
            self.changed.notify_all()
            if headers["authorization"] != f"Bearer {SECRET}":
                self.refused += 1
                return {"ok": False}
            match method:
                case "users.info":
                    return {"ok": True, "user": {"real_name": self.names[given["user"]]}}
                case "chat.postMessage":
                    stamp = str(len(self.posts) + 1)
                    self.posts[stamp] = given["text"]
                    return {"ok": True, "ts": stamp}
            self.posts[given["ts"]] = given["text"]
            return {"ok": True}

    def until_posted(self, *texts: str) -> None:
        """Waits until exactly these texts are posted."""
        with self.changed:
            assert self.changed.wait_for(lambda: sorted(self.posts.values()) == sorted(texts), PATIENCE_SECONDS), (
                self.posts
            )


@contextmanager
def in_thread(server: ThreadingHTTPServer) -> Iterator[str]:
    """Serves HTTP in a thread; gives the address."""
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield "http://{}:{}".format(*server.server_address[:2])
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def bridging(served: str, api: str) -> Iterator[str]:
    """Runs the bridge; gives the address to which events go."""
    environ = {**os.environ, "CHAT_API": f"{api}/api", "CHAT_SECRET": SECRET}
    command = [sys.executable, str(EXAMPLES / "bridge/bridge.py"), served, "127.0.0.1:0"]
    process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        yield process.stdout.readline().removeprefix("listening on ").strip()
    finally:
        process.terminate()
        process.communicate(timeout=200)


def deliver(bridge: str, event_id: str, secret: str = SECRET, **event: str) -> int:
    """Delivers an event as the service does, and returns the status of the answer."""
    body = json.dumps({"event_id": event_id, "event": {"type": "message", "channel": "C1", **event}}).encode()
    return post(bridge, body, secret)


def post(bridge: str, body: bytes, secret: str = SECRET) -> int:
    """Sends bytes to the bridge and returns the status of the answer."""
    request = Request(bridge, body, {"authorization": f"Bearer {secret}", "content-type": "application/json"})
    try:
        with urlopen(request, timeout=200) as answer:
            return answer.status  # type: ignore[no-any-return]
    except OSError as error:
        return int(getattr(error, "code", 0))


BONJOUR = "Émilie du Châtelet: Bonjour."
"""The echo of what the second of two people said: the model learns who speaks."""


async def test_bridge_lets_people_talk_under_their_names(served: str) -> None:
    """One conversation for a channel; an event that comes twice is answered once, over a restart of the bridge too."""
    service = ChatService()
    with in_thread(service.server) as api:
        with bridging(served, api) as bridge:
            assert (
                await asyncio.to_thread(deliver, bridge, "E1", user="U1", text="/rate 20\nHello 世界, how are you?")
                == 200
            )
            await asyncio.to_thread(service.until_posted, "Hello 世界, how are you?")
            assert await asyncio.to_thread(deliver, bridge, "E2", user="U2", text="Bonjour.") == 200
            await asyncio.to_thread(service.until_posted, "Hello 世界, how are you?", BONJOUR)
            assert deliver(bridge, "E3", secret="wrong", user="U1", text="Let me in.") == 401
            assert post(bridge, b"{") == post(bridge, b"[]") == 400
            assert deliver(bridge, "E4", text="posted by the bridge itself") == 200
            assert deliver(bridge, "E5", user="U2", text="/error refused") == 200
            with service.changed:
                failed = service.changed.wait_for(lambda: any("failed:" in one for one in service.posts.values()), 20)
                assert failed
        with bridging(served, api) as bridge:
            assert await asyncio.to_thread(deliver, bridge, "E2", user="U2", text="Bonjour.") == 200
            assert await asyncio.to_thread(deliver, bridge, "E6", user="U1", text="Again.") == 200
            with service.changed:
                assert service.changed.wait_for(
                    lambda: "Ada Lovelace: Again." in service.posts.values(), PATIENCE_SECONDS
                )
    assert list(service.posts.values()).count(BONJOUR) == 1
    async with connect(served) as client:
        sessions = await client.sessions.ListSessions(ListSessionsRequest(labels={"chat.channel": "C1"}))
        [session] = sessions.sessions
        said = [m for m in await messages_of(client, session.id) if m.type == MESSAGE_TYPE_USER]
    assert [(m.sender, m.sender_name, words_of(m).split("\n")[-1]) for m in said] == [
        ("U1", "Ada Lovelace", "Hello 世界, how are you?"),
        ("U2", "Émilie du Châtelet", "Bonjour."),
        ("U2", "Émilie du Châtelet", "/error refused"),
        ("U1", "Ada Lovelace", "Again."),
    ]


@contextmanager
def page(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Serves the web page from one address and Turnwire's web listener on another; gives both."""

    class Files(SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(EXAMPLES / "web"))

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    with own_port() as port, in_thread(ThreadingHTTPServer(("127.0.0.1", 0), Files)) as files:
        web = f'[web]\nlisten = "127.0.0.1:{port}"\nallowed_origins = ["{files}"]\n'
        with serving(tmp_path, web):
            yield files, f"http://127.0.0.1:{port}"


def frame(value: object) -> bytes:
    """Returns a frame of the Connect protocol."""
    data = json.dumps(value).encode()
    return struct.pack(">BI", 0, len(data)) + data


async def test_web_page_is_short_and_speaks_the_protocol(tmp_path: Path) -> None:
    """In fifty lines without other files; what it sends is answered, with the names of fields that it reads."""
    text = (EXAMPLES / "web/index.html").read_text()
    assert len(text.splitlines()) <= 50
    assert not re.findall(r"src=|import |https://", text)
    method = re.search(r'"(opencode\.[\w.]+/\w+)"', text)
    headers = {"content-type": "application/connect+json", "connect-protocol-version": "1"}
    assert method
    assert all(value in text for value in headers.values())
    message = {"requestId": "r", "parts": [{"text": {"text": WORLDS}}]}
    with page(tmp_path) as (files, server):
        async with (
            aiohttp.ClientSession(headers={**headers, "origin": files}) as session,
            session.post(f"{server}/{method[1]}", data=frame({"message": message})) as answer,
        ):
            assert answer.headers["access-control-allow-origin"] == files
            body = await answer.read()
    found = json.dumps([json.loads(part) for part in _frames(body)])
    for name in ("accepted", "events", "sessionId", "partFinished", "turnEnded", "contentBytes", "messageId"):
        assert f'"{name}"' in found
        assert name in text


def _frames(body: bytes) -> Iterator[bytes]:
    while body:
        size = struct.unpack(">BI", body[:5])[1]
        yield body[5 : 5 + size]
        body = body[5 + size :]


@gate("TURNWIRE_TEST_BROWSER", "chromium")
async def test_web_page_works_in_a_browser(tmp_path: Path) -> None:
    """It shows the answer while it comes, goes on with its conversation, and says why an answer failed."""
    with page(tmp_path) as (files, server):
        ready = "'form' in window && form.onsubmit !== null"
        async with browser(f"{files}/index.html?server={server}", tmp_path, ready) as evaluate:
            await evaluate("words.type = 'hidden'")  # which takes several lines
            for words, shown in (
                (f"/rate 50\n/reason Hm.\n{WORLDS} {WORLDS}", f"{WORLDS} {WORLDS}"),
                (f"/rate 20\n{WORLDS}\n/sleep 600", WORLDS),
                ("/words 300", "lorem"),
                ("/error refused", "Failed: "),
            ):
                await evaluate(f"words.value = {json.dumps(words)}; form.requestSubmit()")
                async with asyncio.timeout(PATIENCE_SECONDS):
                    while shown not in str(await evaluate("talk.lastChild.textContent")):
                        await asyncio.sleep(0.05)
                if "/sleep" in words:  # it streams still; the next message waits for its end
                    await _abort(await evaluate("sessionStorage.session"), server)
            assert str(await evaluate("sessionStorage.session")).startswith("ses_")


async def _abort(session_id: str, server: str) -> None:
    """Ends the running turn, with a call that is plain JSON."""
    async with aiohttp.ClientSession() as session:
        method = f"{server}/opencode.message.MessageService/AbortSession"
        async with session.post(method, json={"sessionId": session_id}) as answer:
            assert answer.status == 200
