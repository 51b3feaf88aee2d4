"""A page in Chromium, driven over its debugging protocol."""

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

PATIENCE_SECONDS = 60


class Page:
    """One page."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        """Takes the page's debugger."""
        self._socket = socket
        self._number = 0

    async def call(self, method: str, **parameters: Any) -> Any:
        """Calls a method of the protocol."""
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        while (answer := await self._socket.receive_json()).get("id") != self._number:
            pass
        assert "error" not in answer, answer
        return answer["result"]

    async def evaluate(self, code: str) -> Any:
        """Returns the value of an expression."""
        found = await self.call("Runtime.evaluate", expression=code, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, code: str) -> Any:
        """Returns the value of an expression once it is true."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not (found := await self.evaluate(code)):
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"{code} does not hold; the page shows {await self.text()!r}") from None
        return found

    async def text(self) -> str:
        """Returns what the page shows."""
        return str(await self.evaluate("document.body ? document.body.innerText : ''"))

    async def type(self, text: str) -> None:
        """Types into what has the focus, and presses Enter."""
        await self.call("Input.insertText", text=text)
        for kind in ("keyDown", "keyUp"):
            key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
            await self.call("Input.dispatchKeyEvent", type=kind, **key)


@contextlib.asynccontextmanager
async def chromium(folder: Path) -> AsyncIterator[Page]:
    """Starts Chromium with an empty page and a profile of its own."""
    process = await asyncio.create_subprocess_exec(
        *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
        *("--window-size=1200,900", "--remote-debugging-port=0", f"--user-data-dir={folder}", "about:blank"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            line = b""
            while b"DevTools listening on " not in line:
                line = await process.stderr.readline()
                assert line, "Chromium has ended"
        draining = asyncio.create_task(process.stderr.read())
        host = line.decode().split("ws://")[1].split("/")[0]
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://{host}/json") as listed:
                pages = await listed.json()
            target = next(page for page in pages if page["type"] == "page")
            async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                page = Page(socket)
                await page.call("Page.enable")
                yield page
        draining.cancel()
    finally:
        process.kill()
        await process.wait()
