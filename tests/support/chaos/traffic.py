"""The traffic in the session that a client follows: the commands of the table, texts that stream, and kills."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable

from tests.support.chaos.programs import END
from tests.support.clients.conversation import ask, change_of, talk
from tests.support.commits.table import RULES, Case
from tests.support.commits.traffic import Traffic, come_to_rest
from tests.support.servers.running import Client

CONFIGURATION = f"""
{RULES}
[server]
shutdown_grace_seconds = 0.1
heartbeat_seconds = 1.0
[storage]
retained_events_per_session = 400
"""
"""Configuration of the server: a tool that asks, and places that are dropped after a while."""

WORLDS = "één twee drie 世界 und Grüße 🌍 👩‍👩‍👧 नमस्ते"


class FollowedTraffic(Traffic):
    """Traffic in one session, straight at the server."""

    def __init__(self, client: Client, session_id: str, seed: int, restart: Callable[[], Awaitable[Client]]) -> None:
        """Args:
        client: Of the server.
        session_id: The session.
        seed: Decides what happens.
        restart: Kills the server, starts it again, and returns a client of it.
        """
        super().__init__(client, random.Random(seed), session_id)
        self._restart = restart
        self._number = 0

    async def follow(self, seconds: float) -> None:
        """Acts for a time, each thing at least once however short it is, then sends the last message."""
        ends = time.monotonic() + seconds
        own = (self.quick, self.slow, self.large, self.failure, self.settings, self.kill)
        things = self.commands() | {thing.__name__: thing for thing in own}
        await self.run(things, lambda: time.monotonic() >= ends)
        await talk(self.client, END, self.session_id)

    async def quick(self) -> None:
        """An answer at once."""
        await talk(self.client, f"Hello {WORLDS}", self.session_id)

    async def slow(self) -> None:
        """An answer that streams."""
        words = f"/rate {self._rng.choice((30, 100, 400))}\n/reason {WORLDS}\n{WORLDS}\n{WORLDS} {WORLDS}"
        await talk(self.client, words, self.session_id)

    async def large(self) -> None:
        """A long answer, as fast as it can be."""
        await talk(self.client, "/words 1500", self.session_id)

    async def failure(self) -> None:
        """An answer that fails."""
        how = self._rng.choice(("/error failed 3", "/cut 4", "/error refused", "/refuse No.", "/finish length"))
        await talk(self.client, f"{how}\n{WORLDS}", self.session_id)

    async def settings(self) -> None:
        """Another title, many times: places get old."""
        for _ in range(self._rng.choice((1, 5, 100))):
            self._number += 1
            change = change_of(self.session_id, title=f"Title {self._number}")
            await self.client.sessions.UpdateSession(change)

    async def kill(self) -> None:
        """The server is killed in mid-answer, while a message waits."""
        for words in (f"/rate 50\n{WORLDS}\n{WORLDS}", f"I wait. {WORLDS}"):
            await self.client.messages.SendMessage(ask(words, self.session_id))
        await asyncio.sleep(self._rng.uniform(0, 0.4))  # the moment of the kill, not a wait
        self.client = await self._restart()
        await come_to_rest(self.client, Case(""), self.session_id)
