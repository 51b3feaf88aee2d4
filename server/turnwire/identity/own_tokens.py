"""Turnwire's own tokens as a running server knows them: all of them in memory, so that no call waits for a disk.

One task looks every second whether a command has created or revoked tokens, and stores when tokens were last used.
"""

import asyncio
import contextlib
from datetime import datetime

import structlog

from turnwire.domain.errors import StorageError, Unauthenticated
from turnwire.domain.principal import Principal
from turnwire.identity.access_tokens import problem_of, token_hash
from turnwire.ports.clock import Clock
from turnwire.ports.identity.token_book import TokenBook, TokenRecord

POLL_SECONDS = 1.0
"""Longest use of a revoked token, plus the time of one look."""

USE_SECONDS = 60.0
"""Minimum time between two commits of the last use of one token."""

log = structlog.get_logger()


class OwnTokens:
    """The tokens of one token book: `start`, use, `aclose`."""

    def __init__(self, book: TokenBook, clock: Clock) -> None:
        """Takes the book, which `aclose` closes."""
        self._book = book
        self._clock = clock
        self._records: dict[bytes, TokenRecord] = {}
        """By hash, revoked and expired ones too: the log names them, and not unknown ones."""
        self._used: dict[str, datetime] = {}
        """Last uses that are not stored yet, by token id."""
        self._stored: dict[str, datetime] = {}
        """The time at which the last use was stored, by token id."""
        self._trouble = ""
        self._stopping = asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        """Ends with `aclose`, never by cancelling, which could come in the middle of a use of the book."""

    async def start(self) -> None:
        """Reads all tokens and begins to follow the book. Raises StorageError."""
        await self.load()
        self._following = asyncio.create_task(self._follow(), name="tokens")

    def principal(self, token: str) -> Principal:
        """Returns the principal of a token. Reads only memory.

        Raises:
            Unauthenticated: there is no such token, or it is expired or revoked.
        """
        record = self._records.get(token_hash(token))
        if record is None:
            raise Unauthenticated(problem_of(token) or "an unknown token")
        if record.revoked_at is not None:
            raise Unauthenticated(f"a revoked token: {record.token_id}")
        now = self._clock()
        if record.expires_at is not None and record.expires_at <= now:
            raise Unauthenticated(f"an expired token: {record.token_id}")
        self._used[record.token_id] = now
        return record.principal

    async def load(self) -> None:
        """Reads all tokens. Raises StorageError."""
        before = self._records
        self._records = {record.token_hash: record for record in await self._book.all()}
        came = [record.token_id for key, record in self._records.items() if key not in before]
        went = [record.token_id for key, record in before.items() if self._has_ended(key, record)]
        if before and (came or went):
            log.info("tokens_changed", created=came, revoked=went)

    async def look(self) -> None:
        """Reads the tokens if they have changed, and stores uses that are due.

        While the book cannot be read, the tokens that are known stay valid, and the log has it once.
        """
        try:
            if await self._book.changed():
                await self.load()
            await self._store_uses(self._due())
        except StorageError as error:
            if error.message != self._trouble:
                log.error("tokens_not_read", reason=error.reason, message=error.message)
            self._trouble = error.message
        else:
            self._trouble = ""

    async def aclose(self) -> None:
        """Stores the uses that are left and closes the book. Idempotent."""
        self._stopping.set()
        if self._following is not None:
            await self._following
        with contextlib.suppress(StorageError):
            await self._store_uses(dict(self._used))
        await self._book.aclose()

    async def _follow(self) -> None:
        while not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._stopping.wait()
            await self.look()

    def _has_ended(self, key: bytes, before: TokenRecord) -> bool:
        now = self._records.get(key)
        return before.revoked_at is None and (now is None or now.revoked_at is not None)

    def _due(self) -> dict[str, datetime]:
        return {
            token_id: used
            for token_id, used in self._used.items()
            if token_id not in self._stored or (used - self._stored[token_id]).total_seconds() >= USE_SECONDS
        }

    async def _store_uses(self, uses: dict[str, datetime]) -> None:
        if not uses:
            return
        await self._book.note_uses(uses)
        for token_id, used in uses.items():
            self._stored[token_id] = used
            if self._used.get(token_id) == used:
                del self._used[token_id]
