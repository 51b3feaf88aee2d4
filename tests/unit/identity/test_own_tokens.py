"""Own tokens in a running server."""

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec
import pytest
from structlog.testing import capture_logs

from tests.support.fakes.core import ManualClock
from tests.support.fakes.domain_values import NOW
from turnwire.domain.errors import StorageBusy, Unauthenticated
from turnwire.domain.principal import Principal, Role
from turnwire.identity.access_tokens import new_token, token_hash
from turnwire.identity.own_tokens import OwnTokens
from turnwire.ports.identity.token_book import TokenRecord

EVE = Principal(tenant="acme", subject="eve", role=Role.READER)


def record(token: str, token_id: str = "tok_1", **changes: object) -> TokenRecord:
    """A token of Eve that never ends."""
    kept = TokenRecord(
        token_id=token_id,
        token_hash=token_hash(token),
        principal=EVE,
        created_at=NOW,
        expires_at=None,
        last_used_at=None,
        revoked_at=None,
    )
    return msgspec.structs.replace(kept, **changes)


class Book:
    """A token book in memory that counts how often it is read. Implements `TokenBook`."""

    def __init__(self, *records: TokenRecord) -> None:
        self.records = list(records)
        self.stale = True
        self.reads = 0
        self.uses: list[Mapping[str, datetime]] = []
        self.trouble: StorageBusy | None = None

    async def all(self) -> tuple[TokenRecord, ...]:
        """Returns them."""
        self.stale = False
        self.reads += 1
        return tuple(self.records)

    async def changed(self) -> bool:
        """Whether a test changed them."""
        if self.trouble:
            raise self.trouble
        return self.stale

    async def note_uses(self, uses: Mapping[str, datetime]) -> None:
        """Remembers the uses."""
        self.uses.append(dict(uses))

    async def aclose(self) -> None:
        """Nothing."""


async def loaded(*records: TokenRecord) -> tuple[Book, OwnTokens, ManualClock]:
    """Returns tokens that have read a book."""
    book, clock = Book(*records), ManualClock()
    tokens = OwnTokens(book, clock)  # type: ignore[arg-type]
    await tokens.load()
    return book, tokens, clock


async def test_tokens_come_and_go_with_the_book() -> None:
    """A new one is valid after the next look, a revoked one no longer; the log names both, not the tokens."""
    old, new = new_token(), new_token()
    book, tokens, _ = await loaded(record(old))
    assert tokens.principal(old) == EVE
    book.records, book.stale = [record(old, revoked_at=NOW), record(new, "tok_2")], True
    with capture_logs() as lines:
        await tokens.look()
    assert tokens.principal(new) == EVE
    with pytest.raises(Unauthenticated) as refused:
        tokens.principal(old)
    assert refused.value.cause == "a revoked token: tok_1"
    assert [(line["event"], line["created"], line["revoked"]) for line in lines] == [
        ("tokens_changed", ["tok_2"], ["tok_1"])
    ]
    assert old not in str(lines) and new not in str(lines)


async def test_a_token_ends_at_its_time() -> None:
    """From that very moment on."""
    token = new_token()
    _, tokens, clock = await loaded(record(token, expires_at=NOW + timedelta(days=1)))
    clock.now += timedelta(days=1, microseconds=-1)
    assert tokens.principal(token) == EVE
    clock.now += timedelta(microseconds=1)
    with pytest.raises(Unauthenticated):
        tokens.principal(token)


async def test_wrong_tokens_read_nothing() -> None:
    """Neither do right ones: all are in memory."""
    token = new_token()
    book, tokens, _ = await loaded(record(token))
    for wrong in (new_token(), token[:-1] + "!", "tw_", "tw_\ud800", "x" * 8000):
        with pytest.raises(Unauthenticated):
            tokens.principal(wrong)
    assert tokens.principal(token) == EVE
    assert book.reads == 1


async def test_the_last_use_is_stored_once_a_minute() -> None:
    """By the look, never by the call; what is left is stored at the end."""
    token = new_token()
    book, tokens, clock = await loaded(record(token))
    for _ in range(200):
        tokens.principal(token)
        await tokens.look()
        clock.now += timedelta(seconds=1)
    assert [use["tok_1"] - NOW for use in book.uses] == [timedelta(seconds=s) for s in (0, 60, 120, 180)]
    await tokens.aclose()
    assert book.uses[-1]["tok_1"] - NOW == timedelta(seconds=199)


async def test_a_book_that_cannot_be_read_leaves_the_tokens_as_they_were() -> None:
    """The log has it once, until it works again."""
    token = new_token()
    book, tokens, _ = await loaded(record(token))
    book.trouble = StorageBusy("another process holds the database")
    with capture_logs() as lines:
        for _ in range(3):
            await tokens.look()
    assert [line["event"] for line in lines] == ["tokens_not_read"]
    assert tokens.principal(token) == EVE
