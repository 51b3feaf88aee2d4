"""What a server waits for when it stops."""

from pathlib import Path

import pytest

from tests.support.servers.running import running_server
from turnwire.core.detached import DetachedTasks


async def test_a_stop_waits_for_all_work_whose_callers_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Accepted work is stored before the database is closed."""
    made, settled = list[DetachedTasks](), list[DetachedTasks]()
    make, settle = DetachedTasks.__init__, DetachedTasks.aclose

    def note_made(owner: DetachedTasks) -> None:
        make(owner)
        made.append(owner)

    async def note_settled(owner: DetachedTasks) -> None:
        await settle(owner)
        settled.append(owner)

    monkeypatch.setattr(DetachedTasks, "__init__", note_made)
    monkeypatch.setattr(DetachedTasks, "aclose", note_settled)
    async with running_server(tmp_path):
        assert made and not settled
    assert set(settled) == set(made)
