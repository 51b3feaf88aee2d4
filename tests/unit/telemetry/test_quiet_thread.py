"""Threads that import give the interpreter up, and leave everything as it was."""

import asyncio
import gc
import importlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnwire.telemetry import quiet_thread
from turnwire.telemetry.quiet_thread import SWITCH_SECONDS, quietly


def interpreter() -> tuple[float, bool, int]:
    """Returns what the thread changes."""
    return sys.getswitchinterval(), gc.isenabled(), len(sys.meta_path)


async def test_the_interpreter_is_shared_better_only_meanwhile() -> None:
    """A thread is asked sooner to give it up, and no garbage is collected."""
    before = interpreter()
    seconds, collects, finders = await quietly(interpreter)
    assert (round(seconds, 6), collects, finders) == (SWITCH_SECONDS, False, before[2] + 1)
    assert interpreter() == before


async def test_two_at_once_restore_once() -> None:
    """The first one changes the interpreter, the last one changes it back."""
    before, together = interpreter(), threading.Barrier(2, timeout=200)
    await asyncio.gather(quietly(together.wait), quietly(together.wait))
    assert interpreter() == before


async def test_an_error_is_the_callers() -> None:
    """It is raised where the work is awaited."""
    before = interpreter()
    with pytest.raises(ModuleNotFoundError):
        await quietly(importlib.import_module, "no_such_module_anywhere")
    assert interpreter() == before


async def test_a_caller_that_is_cancelled_does_not_wait() -> None:
    """The work goes on, because a half imported package is worse than one that nobody needs."""
    may_end, has_ended = threading.Event(), threading.Event()

    def work() -> None:
        may_end.wait(200)
        has_ended.set()

    task = asyncio.create_task(quietly(work))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    may_end.set()
    assert await asyncio.to_thread(has_ended.wait, 10)


@pytest.fixture
def package(tmp_path: Path) -> Iterator[str]:
    """A package of three modules."""
    name = "imported_by_a_quiet_thread"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text(f"import {name}.one, {name}.two\n")
    for module in ("one", "two"):
        (tmp_path / name / f"{module}.py").touch()
    sys.path.insert(0, str(tmp_path))
    yield name
    sys.path.remove(str(tmp_path))
    for module in [module for module in sys.modules if module.startswith(name)]:
        del sys.modules[module]


async def test_each_module_is_a_pause_of_that_thread_alone(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before each module that a package imports, others may run."""
    pauses: list[int] = []
    monkeypatch.setattr(quiet_thread.time, "sleep", lambda _: pauses.append(threading.get_ident()))
    await quietly(importlib.import_module, package)
    assert len(pauses) == 3
    assert threading.get_ident() not in pauses
