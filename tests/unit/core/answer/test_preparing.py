"""The writers that are kept of a session."""

from types import SimpleNamespace
from typing import Any

from turnwire.core.answer.preparing import Writers


def provider(provider_id: str) -> Any:
    """Returns a provider whose writers are told apart."""
    return SimpleNamespace(provider_id=provider_id, writer=lambda: SimpleNamespace(size_bytes=1))


def test_a_provider_keeps_its_writer() -> None:
    """What it remembers of a conversation saves time; one a provider that was replaced gets another one."""
    writers, first, replaced = Writers(), provider("a"), provider("a")
    kept = writers.of(first)
    assert writers.of(first) is kept
    assert writers.of(replaced) is not kept
    assert writers.size_bytes == 1


def test_two_writers_are_kept() -> None:
    """Those that were used last."""
    writers, one, other, third = Writers(), provider("a"), provider("b"), provider("c")
    first, second = writers.of(one), writers.of(other)
    assert writers.of(one) is first
    writers.of(third)
    assert writers.of(one) is first
    assert writers.of(other) is not second
    assert writers.size_bytes == 2
