"""The tokens of callers: what commands and servers rely on when all of them use the same ones."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.fakes import opened_store
from tests.support.fakes.identity import START, token_record
from turnwire.ports.identity.token_book import TokenBook

Opening = Callable[[], Awaitable[TokenBook]]


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Opening]:
    """Opens the tokens once more, until the end of the test."""
    async with contextlib.AsyncExitStack() as closing:

        async def open_tokens() -> TokenBook:
            return await closing.enter_async_context(contextlib.aclosing(await opened_store.ENGINE.tokens(tmp_path)))

        yield open_tokens


async def test_tokens_are_kept(opened: Opening) -> None:
    """Whole, in the order of their making, over a close."""
    first, second = token_record(1), token_record(2, START + timedelta(days=1))
    file = await opened()
    await file.add(second)
    await file.add(first)
    await file.aclose()
    await file.aclose()
    assert await (await opened()).all() == (first, second)


async def test_others_see_a_change_once(opened: Opening) -> None:
    """Only other processes do; one's own uses are no change."""
    server, command = await opened(), await opened()
    assert await server.changed()
    assert await server.all() == ()
    assert not await server.changed()
    await command.add(token_record(1))
    assert await server.changed()
    assert await server.all() == (token_record(1),)
    await server.note_uses({"tok_1": START, "tok_unknown": START})
    assert not await server.changed()
    assert await command.revoke("tok_1", START)
    assert await server.changed()
    assert (await server.all())[0].revoked_at == START


async def test_revoking_again_keeps_the_first_time(opened: Opening) -> None:
    """And an unknown token is named as such."""
    file = await opened()
    await file.add(token_record(1))
    assert await file.revoke("tok_1", START) and await file.revoke("tok_1", START + timedelta(days=1))
    assert not await file.revoke("tok_2", START)
    assert (await file.all())[0].revoked_at == START


async def test_the_last_use_only_moves_on(opened: Opening) -> None:
    """An older one, of a server with a slower clock, changes nothing."""
    file = await opened()
    await file.add(token_record(1))
    for seconds in (60, 30):
        await file.note_uses({"tok_1": START + timedelta(seconds=seconds)})
    assert (await file.all())[0].last_used_at == START + timedelta(seconds=60)


async def test_nothing_to_note_is_no_change(opened: Opening) -> None:
    """A server with no calls writes nothing."""
    file = await opened()
    await file.note_uses({})
    assert await file.all() == ()
