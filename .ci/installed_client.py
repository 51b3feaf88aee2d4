"""Talks to a server with the installed client: installed_client.py TURNWIRE. Neither is that of the checkout.

TURNWIRE is the installed command of the server. The client has nothing of the server in its environment.
"""

import asyncio
import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

from turnwire_client import BlockingClient, Client

_PREFIX = "listening on "


async def ask(address: str) -> str:
    """Returns an answer, for which the model calls a function of this file."""
    async with Client.connect(address) as client:

        @client.tool
        def weather(city: str) -> str:
            """Tells the weather."""
            return f"It rains in {city}."

        return await client.ask('/tool weather {"city": "Utrecht"}')


def main() -> None:
    """Starts the server, asks both faces, and stops it."""
    turnwire = Path(sys.argv[1]).resolve()
    assert importlib.util.find_spec("turnwire") is None, "the client brings the server"
    with tempfile.TemporaryDirectory() as folder:
        command = [turnwire, "serve", "--listen", "127.0.0.1:0"]
        server = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
        try:
            assert server.stderr is not None
            address = next(line for line in server.stderr if line.startswith(_PREFIX)).removeprefix(_PREFIX).strip()
            answer = asyncio.run(ask(address))
            assert "It rains in Utrecht." in answer, answer
            with BlockingClient.connect(address) as client:
                assert client.ask("Hello").result() == "Hello"
        finally:
            server.terminate()
            server.communicate(timeout=30)
    print("    the installed client talks to the installed server")


if __name__ == "__main__":
    main()
