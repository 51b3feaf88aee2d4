"""OpenCode's own clients work with the adapter: SDK, `run --attach`, the terminal and the web page of version 1.18.33.

They are downloaded, so these tests run only with TURNWIRE_TEST_OPENCODE=1, or with a folder there that has them.
"""

import asyncio
import base64
import contextlib
import json
import os
import re
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx2
import pytest

from adapters.tests.opencode_clients.browser import Page, chromium
from adapters.tests.opencode_clients.conftest import Cut, cut_before
from adapters.tests.opencode_support import OpenCode

PATIENCE_SECONDS = 60
WORDS = [f"word{number}" for number in range(40)]
SLOW = "\n".join(["/rate 20", " ".join(WORDS)])
"""A prompt whose answer takes two seconds."""
TOOL = 'Add.\n/tool test.add {"a": 2, "b": 3}\n/step\nAdded it.'


def needs(*tools: str) -> pytest.MarkDecorator:
    """Returns the mark of a test that needs OpenCode's packages and these programs."""
    if not os.environ.get("TURNWIRE_TEST_OPENCODE"):
        return pytest.mark.skip("downloads OpenCode's packages: TURNWIRE_TEST_OPENCODE=1")
    missing = [tool for tool in ("node", "npm", *tools) if shutil.which(tool) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


async def run(*command: str | Path, cwd: Path, environ: dict[str, str]) -> str:
    """Returns what a program printed that ended well."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command), cwd=cwd, env=environ, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            out, err = await process.communicate()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    assert process.returncode == 0, out.decode() + err.decode()
    return out.decode()


def program(installed: Path) -> Path:
    """Returns OpenCode's program for this machine."""
    return sorted(installed.glob("node_modules/opencode-*/bin/opencode"))[0]


@needs()
async def test_sdk(adapter: Cut, installed: Path, environ: dict[str, str]) -> None:
    """Create, prompt, stream, abort, permission, fork, revert, list and the rest of sdk.mjs hold."""
    printed = await run("node", "sdk.mjs", cwd=installed, environ={**environ, "OPENCODE_BASE": adapter.address})
    assert len([line for line in printed.splitlines() if line.startswith("ok ")]) > 25


@needs()
async def test_sdk_has_the_whole_text_after_its_connection_was_cut(
    adapter: Cut, installed: Path, environ: dict[str, str]
) -> None:
    """Its stream goes on by itself, with the text once; OpenCode's own server would leave a hole."""
    process = await asyncio.create_subprocess_exec(
        *("node", "cut.mjs"),
        cwd=installed,
        env={**environ, "OPENCODE_BASE": adapter.address, "OPENCODE_PROMPT": SLOW},
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert (await process.stdout.readline()).decode() == "writing\n"
        adapter.cut()
        told = json.loads(await process.stdout.readline())
        assert await process.wait() == 0
    assert told["shown"] == told["stored"] == [SLOW, " ".join(WORDS)]


@needs()
async def test_run_prints_every_answer(adapter: Cut, installed: Path, environ: dict[str, str]) -> None:
    """`opencode run --attach` prints the answer each time, and nothing else; it goes on with the last session."""
    here = Path(environ["HOME"]) / "work"
    for number in range(5):
        command = (program(installed), "run", "--attach", adapter.address, f"Hello{number}")
        assert (await run(*command, cwd=here, environ=environ)).strip() == f"Hello{number}"
    command = (program(installed), "run", "--attach", adapter.address, "--continue", "Again")
    assert (await run(*command, cwd=here, environ=environ)).strip() == "Again"
    async with httpx2.AsyncClient() as client:
        opencode = OpenCode(adapter.address, client)
        newest = (await opencode.call("GET", "/session"))[0]["id"]
        assert len(await opencode.messages(newest)) == 4


class Terminal:
    """OpenCode's terminal interface, in a tmux of its own."""

    def __init__(self, socket: str, environ: dict[str, str]) -> None:
        """Takes the name of tmux's socket."""
        self._tmux = ("tmux", "-L", socket, "-f", os.devnull)
        self._environ = environ

    async def tmux(self, *arguments: str) -> str:
        """Runs a command of tmux."""
        return await run(*self._tmux, *arguments, cwd=Path(self._environ["HOME"]) / "work", environ=self._environ)

    async def until(self, is_it: Callable[[str], object]) -> str:
        """Returns what the screen shows once it is it."""
        screen = ""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not is_it(screen := await self.tmux("capture-pane", "-p")):
                    await asyncio.sleep(0.1)
        except TimeoutError:
            pytest.fail(f"the terminal shows:\n{screen}")
        return screen

    async def send(self, text: str) -> None:
        """Pastes a prompt and presses Enter once it is there."""
        await self.tmux("set-buffer", text)
        await self.tmux("paste-buffer", "-p")
        await self.until(lambda screen: text.splitlines()[0] in screen or "Pasted" in screen)
        await self.tmux("send-keys", "Enter")


@contextlib.asynccontextmanager
async def terminal(address: str, installed: Path, environ: dict[str, str]) -> AsyncIterator[Terminal]:
    """Starts `opencode attach`; it is ready when the block begins."""
    shown = Terminal(f"turnwire-{os.getpid()}", environ)
    await shown.tmux("new-session", "-d", "-x", "120", "-y", "50", f"{program(installed)} attach {address}")
    try:
        await shown.until(lambda screen: "Ask anything" in screen and "Echo" in screen)
        yield shown
    finally:
        await shown.tmux("kill-server")


@needs("tmux")
async def test_terminal(adapter: Cut, installed: Path, environ: dict[str, str]) -> None:
    """It shows question above answer, streams, asks for permission, and has the whole text after a cut."""
    async with terminal(adapter.address, installed, environ) as shown:
        await shown.send("Hello terminal")
        await shown.until(lambda screen: len(re.findall(r"^ +┃? +Hello terminal", screen, re.MULTILINE)) == 2)
        await shown.send(TOOL)
        await shown.until(lambda screen: "Permission required" in screen)
        await shown.tmux("send-keys", "Enter")
        await shown.until(lambda screen: screen.count("Added it.") == 2)
        await shown.send(f"Slowly.\n{SLOW}")
        await shown.until(lambda screen: screen.split().count("word3") == 2 and screen.split().count("word39") == 1)
        adapter.cut()
        last = await shown.until(lambda screen: screen.split().count("word39") == 2)
        assert [last.split().count(word) for word in WORDS] == [2] * len(WORDS)


@contextlib.asynccontextmanager
async def web_page(installed: Path, environ: dict[str, str]) -> AsyncIterator[str]:
    """Serves OpenCode's web page with its own program; yields its origin."""
    process = await asyncio.create_subprocess_exec(
        *(program(installed), "serve", "--port", "0"),
        cwd=Path(environ["HOME"]) / "work",
        env=environ,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while b"listening on " not in (line := await process.stdout.readline()):
                assert line, "it has ended"
        yield line.decode().partition("listening on ")[2].strip()
    finally:
        process.kill()
        await process.wait()


async def open_page(page: Page, origin: str, server: str, directory: str) -> None:
    """Opens a new session of a server that the page is told in its settings."""
    servers = {"list": [{"type": "http", "http": {"url": server}}], "projects": {}, "lastProject": {}}
    kept = {
        "opencode.global.dat:server": json.dumps({**servers, "recentlyClosed": {}}),
        "opencode.settings.dat:defaultServerUrl": server,
    }
    source = "".join(f"localStorage.setItem({json.dumps(name)}, {json.dumps(text)});" for name, text in kept.items())
    await page.call("Page.addScriptToEvaluateOnNewDocument", source=source)
    path = base64.urlsafe_b64encode(directory.encode()).decode().rstrip("=")
    await page.call("Page.navigate", url=f"{origin}/{path}/session")


@needs("chromium")
async def test_web_page(server: str, installed: Path, environ: dict[str, str], tmp_path: Path) -> None:
    """It shows each message once, streams, asks for permission, and has the whole text after a cut."""
    field = "document.querySelector('[data-component=prompt-input]')"
    count = "document.body.innerText.split({}).length - 1"
    async with (
        web_page(installed, environ) as origin,
        cut_before(server, "", [origin]) as cut,
        chromium(tmp_path / "profile") as page,
    ):
        await open_page(page, origin, cut.address, f"{environ['HOME']}/work")
        await page.until(f"{field} && document.body.innerText.includes('Echo')")

        async def send(text: str) -> None:
            await page.until(f"({field}.focus(), document.activeElement === {field})")
            await page.type(text.replace("\n", "\n\n", 1))  # its field takes the first one for itself

        await send("First of all")
        await page.until("location.pathname.includes('/session/ses_')")
        await send("Hello page")
        await page.until(f"{count.format(json.dumps('Hello page'))} === 2")
        await send(f"Slowly.\n{SLOW}")
        await page.until(f"{count.format(json.dumps('word3 '))} === 2 && {count.format(json.dumps('word39'))} === 1")
        cut.cut()
        await page.until(f"{count.format(json.dumps('word39'))} === 2")
        assert [await page.evaluate(count.format(json.dumps(f"{word} "))) for word in WORDS[:-1]] == [2] * 39
        await send(TOOL)
        await page.until("[...document.querySelectorAll('button')].some(one => /allow once/i.test(one.innerText))")
        await page.evaluate(
            "[...document.querySelectorAll('button')].find(b => /allow once/i.test(b.innerText)).click()"
        )
        await page.until(f"{count.format(json.dumps('Added it.'))} === 2")
