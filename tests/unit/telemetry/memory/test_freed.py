"""When freed memory is given back."""

import threading

from turnwire.telemetry.memory.freed import WORTH_BYTES, FreedMemory

MB = 2**20


class _Memory:
    """Memory with numbers that a test sets; the thread waits for each look of the test."""

    def __init__(self) -> None:
        self.resident, self.in_use = 100 * MB, 40 * MB
        self.given_back: list[int] = []
        self._lock = threading.Lock()

    def held(self) -> int:
        return self.resident

    def used(self) -> int:
        return self.in_use

    def give_back(self) -> None:
        with self._lock:
            self.given_back.append(self.resident - 60 * MB - self.in_use)
            self.resident = 60 * MB + self.in_use


def _looked(memory: _Memory, *moments: tuple[int, int]) -> list[int]:
    """Returns how much is given back when the memory is held and used so at each look."""
    freed = FreedMemory(memory, look_seconds=1000)
    freed.start()
    for held, used in moments:
        memory.resident, memory.in_use = held, used
        freed._look(memory)
    freed.stop()
    return memory.given_back


def test_what_is_used_is_left_alone() -> None:
    """However much it is."""
    assert _looked(_Memory(), (900 * MB, 840 * MB), (900 * MB, 840 * MB)) == []


def test_what_is_free_and_held_is_given_back_when_it_is_worth_it() -> None:
    """One byte less is not."""
    assert _looked(_Memory(), (100 * MB + WORTH_BYTES - 1, 40 * MB)) == []
    assert _looked(_Memory(), (100 * MB + WORTH_BYTES, 40 * MB)) == [WORTH_BYTES]


def test_it_is_given_back_after_each_flood() -> None:
    """Though no more is held than in the middle of the flood, when nothing was free."""
    assert _looked(_Memory(), (900 * MB, 840 * MB), (900 * MB, 40 * MB), (150 * MB, 90 * MB), (900 * MB, 40 * MB)) == [
        800 * MB,
        800 * MB,
    ]


def test_another_c_library_is_left_alone() -> None:
    """No thread looks, and to stop is nothing."""
    freed = FreedMemory(None)
    freed.start()
    freed.stop()
    assert freed._thread is None
