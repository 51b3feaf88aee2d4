"""What a server waits for when it stops."""

from pathlib import Path

import pytest

from tests.support.servers.running import running_server
from turnwire.core.uncancelled import Uncancelled


async def test_a_stop_waits_for_all_work_whose_callers_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it does: what was accepted is stored before the database is closed."""
    made, settled = list[Uncancelled](), list[Uncancelled]()
    make, settle = Uncancelled.__init__, Uncancelled.settle

    def note_made(owner: Uncancelled) -> None:
        make(owner)
        made.append(owner)

    async def note_settled(owner: Uncancelled) -> None:
        await settle(owner)
        settled.append(owner)

    monkeypatch.setattr(Uncancelled, "__init__", note_made)
    monkeypatch.setattr(Uncancelled, "settle", note_settled)
    async with running_server(tmp_path):
        assert len(made) > 10 and not settled
    assert set(settled) == set(made)
