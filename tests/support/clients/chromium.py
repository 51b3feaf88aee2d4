"""A page in Chromium, driven over its debugger."""

import asyncio
import itertools
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
        ready: JavaScript that is true once the page can be used; there are two minutes until then.

    The function returns None for code that a navigation took away.
    """
    process = await asyncio.create_subprocess_exec(
        *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
        *("--remote-debugging-port=0", f"--user-data-dir={folder / 'profile'}", url),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr
    reading = None
    try:
        async with asyncio.timeout(120) as starting, aiohttp.ClientSession() as session:
            debugger = b""
            while b"DevTools listening on " not in debugger:
                debugger = await process.stderr.readline()
                assert debugger, "Chromium ended"
            reading = asyncio.create_task(process.stderr.read())  # a full pipe would stop it
            host = debugger.decode().split("ws://")[1].split("/")[0]
            target = None
            while target is None:
                async with session.get(f"http://{host}/json") as listed:
                    pages = await listed.json()
                target = next((one for one in pages if one["url"] == url), None)
            async with session.ws_connect(target["webSocketDebuggerUrl"]) as socket:
                numbers = itertools.count(1)

                async def evaluate(code: str) -> Any:
                    number = next(numbers)
                    await socket.send_json({"id": number, "method": "Runtime.evaluate", "params": {"expression": code}})
                    while (answer := await socket.receive_json()).get("id") != number:
                        pass
                    if "error" in answer:
                        return None
                    assert "exceptionDetails" not in answer["result"], answer
                    return answer["result"]["result"].get("value")

                while not await evaluate(ready):
                    await asyncio.sleep(0.05)
                starting.reschedule(None)
                yield evaluate
    finally:
        process.kill()
        await process.wait()
        if reading is not None:
            await reading
