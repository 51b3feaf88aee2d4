"""Chooses the inputs that are worth keeping: those that reach a step from line to line that no shorter one reaches."""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

from tests.support.fuzzing.corpus import MAX_FILE_BYTES
from tests.support.fuzzing.targets import guides, target

Step = tuple[str, int, int]


def worth_keeping(name: str, examples: Iterable[bytes], found: Iterable[bytes]) -> list[bytes]:
    """Returns the inputs that reach more than the examples and than those before them, the shortest first."""
    check, packages = target(name).check, guides(name)
    reached: set[Step] = set()
    for data in examples:
        reached |= _steps(check, data, packages)
    kept = []
    for data in sorted(set(found), key=lambda one: (len(one), one)):
        if len(data) <= MAX_FILE_BYTES and not (steps := _steps(check, data, packages)) <= reached:
            reached |= steps
            kept.append(data)
    return kept


def _steps(check: Callable[[bytes], object], data: bytes, packages: tuple[str, ...]) -> set[Step]:
    steps: set[Step] = set()

    def enter(frame: FrameType, _event: str, _value: Any) -> Any:
        if not str(frame.f_globals.get("__name__", "")).startswith(packages):
            return None
        last, name = frame.f_lineno, frame.f_code.co_filename

        def go(frame: FrameType, _event: str, _value: Any) -> Any:
            nonlocal last
            steps.add((name, last, frame.f_lineno))
            last = frame.f_lineno
            return go

        return go

    threading.settrace(enter)
    sys.settrace(enter)
    try:
        with contextlib.suppress(AssertionError):  # a finding: it is kept apart
            check(data)
    finally:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
    return steps
