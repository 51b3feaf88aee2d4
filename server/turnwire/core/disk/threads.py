"""Threads for files that callers name: a file system that hangs holds up who reads from it, and nobody else."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

MAX_FILE_READS = 8
"""Reads of files that callers name, at the same time; further ones wait."""

P = ParamSpec("P")
T = TypeVar("T")

_threads = ThreadPoolExecutor(MAX_FILE_READS, thread_name_prefix="files")


async def on_file_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Returns what a function returns, or raises what it raises; it may block for long."""
    return await asyncio.get_running_loop().run_in_executor(_threads, partial(function, *args, **kwargs))
