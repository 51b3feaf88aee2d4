"""A page in Chromium, driven over its debugger."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp


@asynccontextmanager
async def browser(url: str, folder: Path, ready: str) -> AsyncIterator[Callable[[str], Awaitable[Any]]]:
    """Opens a page in Chromium, with its profile in a folder; gives a function that evaluates JavaScript in it.

    Args:
        url: The page.
        folder: Where the profile goes.
        ready: JavaScript that is true once the page can be used.
    """
    process = await asyncio.create_subprocess_exec(
        *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
        *("--remote-debugging-port=0", f"--user-data-dir={folder / 'profile'}", url),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr
    try:
        async with asyncio.timeout(60), aiohttp.ClientSession() as session:
            debugger = b""
            while b"DevTools listening on " not in debugger:
                debugger = await process.stderr.readline()
            host = debugger.decode().split("ws://")[1].split("/")[0]
            target = None
            while target is None:
                async with session.get(f"http://{host}/json") as listed:
                    pages = await listed.json()
                target = next((one for one in pages if one["url"] == url), None)
            async with session.ws_connect(target["webSocketDebuggerUrl"]) as socket:
                numbers = iter(range(1, 10_000))

                async def evaluate(code: str) -> Any:
                    number = next(numbers)
                    await socket.send_json({"id": number, "method": "Runtime.evaluate", "params": {"expression": code}})
                    while (answer := await socket.receive_json()).get("id") != number:
                        pass
                    assert "exceptionDetails" not in answer["result"], answer
                    return answer["result"]["result"].get("value")

                while not await evaluate(ready):
                    await asyncio.sleep(0.05)
                yield evaluate
    finally:
        process.kill()
        await process.wait()
