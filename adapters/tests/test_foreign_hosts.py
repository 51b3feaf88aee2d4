"""Programs that nobody here has linked against anything: a host of Plue in C, and curl as an EventSource of Maria."""

import asyncio
import json
import shutil
from pathlib import Path

import httpx2
import pytest

from adapters.tests.conftest import Start

HOST = Path(__file__).with_name("plue_host.c")
CC = shutil.which("cc")
CURL = shutil.which("curl")


async def ran(*command: str) -> tuple[int | None, str]:
    """Runs a program and returns its exit code and what it printed."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    return process.returncode, output.decode()


@pytest.mark.skipif(CC is None, reason="needs a compiler of C")
async def test_a_host_in_c_streams_an_answer(turnwire: str, start: Start, tmp_path: Path) -> None:
    """It calls back with each update and returns the code."""
    assert CC is not None
    program = tmp_path / "host"
    assert await ran(CC, "-Wall", "-Werror", "-o", str(program), str(HOST)) == (0, "")
    async with start(turnwire, ["plue"]) as base:
        code, printed = await ran(str(program), base.rpartition(":")[2])
    *updates, last = printed.splitlines()
    assert (code, last) == (0, f"{len(updates)} updates, code 0")
    told = [json.loads(update) for update in updates]
    assert "".join(update["content"] for update in told[:-1]) == "Hello from C"
    assert [update["type"] for update in told].count("done") == 1


@pytest.mark.skipif(CURL is None, reason="needs curl")
async def test_curl_follows_a_task(turnwire: str, start: Start) -> None:
    """From its beginning, until the conversation has ended."""
    assert CURL is not None
    async with start(turnwire, ["maria"]) as base, httpx2.AsyncClient(base_url=f"{base}/maria") as http:
        message = {"role": "user", "content": "Hello"}
        task = (await http.post("/v1/task", json={"message": message})).json()["task"]["id"]
        process = await asyncio.create_subprocess_exec(
            *(CURL, "-sSN", "-H", "Last-Event-ID: 0", f"{base}/maria/v1/task/{task}/events"),
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        told = list[str]()
        while not told or told[-1] != "PostConversation":
            line = (await process.stdout.readline()).decode()
            assert line, told
            if line.startswith('data: {"msg"'):
                told.append(json.loads(line.removeprefix("data: "))["msg"])
        process.kill()
        await process.wait()
    assert told == [
        "MessageQueued", "PreConversation", "MessageUnqueued", "MessageAdded", "RequestCompleted", "PostConversation",
    ]  # fmt: skip
