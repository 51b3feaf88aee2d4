"""Threads for files that callers name."""

import asyncio
import threading

import pytest

from turnwire.core.disk.threads import MAX_FILE_READS, on_file_thread


async def test_files_that_hang_hold_up_files_alone() -> None:
    """Further reads wait for them; what else needs a thread does not."""
    may_end, names = threading.Event(), list[str]()

    def hang() -> None:
        names.append(threading.current_thread().name)
        assert may_end.wait(20)

    hanging = [asyncio.create_task(on_file_thread(hang)) for _ in range(MAX_FILE_READS)]
    waiting = asyncio.create_task(on_file_thread(threading.get_ident))
    assert await asyncio.to_thread(lambda: 1) == 1
    assert not waiting.done()
    may_end.set()
    await asyncio.gather(*hanging, waiting)
    assert len({name for name in names if name.startswith("files")}) == MAX_FILE_READS


async def test_errors_and_arguments_pass() -> None:
    """As of any call."""
    assert await on_file_thread(int, "ff", base=16) == 255
    with pytest.raises(ValueError, match="invalid literal"):
        await on_file_thread(int, "x")
