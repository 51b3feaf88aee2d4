"""Sends a message and prints the answer while it comes: client.py [TEXT [HOST:PORT]]."""

import asyncio
import sys

from turnwire_client import Client, TurnwireError

text, address = (*sys.argv[1:], *("Hello from Python", "127.0.0.1:50051")[len(sys.argv) - 1 :])


async def main() -> None:
    """Asks, and prints each piece of text once."""
    async with Client.connect(address) as client:
        async for piece in client.ask(text):
            print(piece, end="", flush=True)
    print()


try:
    asyncio.run(main())
except TurnwireError as error:
    sys.exit(str(error))
