"""Copies of sessions over the real store, while others change or delete their originals."""

import asyncio
from pathlib import Path

import pytest

from tests.support.fakes.domain_values import NOW
from tests.support.oracles.archives import golden_records, real_id
from tests.support.servers.moving import MINE, lines, moving
from turnwire.core.intake.requests import NamedRequests, SessionChange
from turnwire.core.turns.registry import Turns
from turnwire.core.use_cases.forks import SessionForks
from turnwire.domain.conversation.events import SessionDeleted
from turnwire.domain.errors import SessionNotFound
from turnwire.ports.commit import Commit, Committed, NewEvent, RemoveSession

SESSION = real_id("ses", "golden")


@pytest.mark.parametrize("part_changes", [1, 1_000])
async def test_an_original_that_is_deleted_meanwhile_is_not_found(
    part_changes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are gone, too, when the copy is stored, in one commit or in parts; nothing of the copy stays."""
    monkeypatch.setattr("turnwire.core.use_cases.forks.PART_CHANGES", part_changes)
    async with moving(tmp_path) as here:
        await here.bring(lines(golden_records()))
        forks = SessionForks(
            here.environment, Turns(here.environment), NamedRequests(here.store, here.environment.detached)
        )
        real = here.store.commit
        deletion = Commit(
            tenant=MINE.tenant,
            session_id=SESSION,
            at=NOW,
            changes=(RemoveSession(),),
            events=(NewEvent(SessionDeleted()),),
        )

        async def after_deletion(unit: Commit) -> Committed:
            await real(deletion)
            await here.store.removals()
            return await real(unit)

        def commit(unit: Commit) -> asyncio.Future[Committed]:
            here.store.commit = real
            return asyncio.ensure_future(after_deletion(unit))

        here.store.commit = commit
        with pytest.raises(SessionNotFound):
            await forks.fork(MINE, SESSION, "", SessionChange())
        here.store.commit = real
        await here.store.removals()
        assert await here.archive() == lines([])
