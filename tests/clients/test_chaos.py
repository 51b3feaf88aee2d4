"""Each client's program follows a session through a network that breaks all the time, and then holds what is stored.

The clients in other languages download packages, so they run only with TURNWIRE_TEST_GO=1, TURNWIRE_TEST_TYPESCRIPT=1
and TURNWIRE_TEST_SWIFT=1. TURNWIRE_CHAOS_SECONDS=60 lets the traffic last longer, TURNWIRE_CHAOS_SEED=N draws another.
"""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from opencode.message.content_pb2 import SessionMessage
from tests.support.chaos.harness import Outcome, build, run
from tests.support.chaos.programs import PROGRAMS, ROOT, Program
from tests.support.chaos.proxy import ChaosProxy

SECONDS = float(os.environ.get("TURNWIRE_CHAOS_SECONDS", "2"))
SEED = int(os.environ.get("TURNWIRE_CHAOS_SEED", "1"))


def missing(program: Program) -> str:
    """Returns why a program cannot run here; "" when it can."""
    if not program.exists():
        return f"not there: {program.folder}/{program.source}"
    if program.web and not (ROOT / "server/turnwire/api/web").is_dir():
        return "there is no web listener yet"
    if program.variable and os.environ.get(program.variable) != "1":
        return f"runs with {program.variable}=1"
    tools = [tool for tool in program.tools if shutil.which(tool) is None]
    return f"not installed: {', '.join(tools)}" if tools else ""


@pytest.mark.timeout(600 + 3 * SECONDS)
@pytest.mark.parametrize("name", PROGRAMS)
async def test_a_client_holds_what_is_stored(name: str, tmp_path: Path) -> None:
    """After connections that were cut, reset, half open and late, kills of the server, and every kind of change."""
    program = PROGRAMS[name]
    if reason := missing(program):
        pytest.skip(reason)
    work, folder = tmp_path / "work", tmp_path / "server"
    work.mkdir()
    folder.mkdir()
    await asyncio.to_thread(build, program, work)
    outcome = await run(program, folder, work, SECONDS, SEED)
    assert outcome.differences() == ""
    assert sum(outcome.connections.values()) > 2, "the network was too good"
    happened = {name.removesuffix(" refused") for name in outcome.happened}
    assert {"kill", "select", "rewind", "permission", "queue"} <= happened


def test_another_message_is_noticed() -> None:
    """A program that holds less, more or something else is told apart from one that holds the same."""
    one, two = SessionMessage(message_id="msg_1"), SessionMessage(message_id="msg_2")
    other = SessionMessage(message_id="msg_1", sender="somebody")
    for held, is_same in (([one], True), ([], False), ([one, two], False), ([two], False), ([other], False)):
        outcome = Outcome({}, {}, [one], held, code=0)
        assert (outcome.differences() == "") == is_same
    assert Outcome({}, {}, [], [], code=None).differences()


async def test_the_proxy_ends_connections_and_then_is_calm() -> None:
    """The same seed treats connections the same way; none passes whole. Once it is calm, all do."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read(100))
        await writer.drain()
        await reader.read()
        writer.close()

    async def ends(proxy: ChaosProxy) -> None:
        reader, writer = await asyncio.open_connection(*proxy.address.split(":"))
        try:
            writer.write(b"hello")
            while await reader.read(100):
                pass
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server:
        to = "{}:{}".format(*server.sockets[0].getsockname())
        seen = []
        for _ in range(2):
            async with ChaosProxy(to, seed=5, life_seconds=0.02) as proxy:
                await asyncio.gather(*(ends(proxy) for _ in range(30)))
                seen.append(dict(proxy.ends))
                assert proxy.ends.total() == 30
                assert set(proxy.ends) == {"cut", "reset", "half open", "refused"}
                proxy.calm()
                reader, writer = await asyncio.open_connection(*proxy.address.split(":"))
                writer.write(b"hello")
                assert await reader.readexactly(5) == b"hello"
                writer.close()
                assert proxy.ends["whole"] == 1
        assert seen[0] == seen[1]
