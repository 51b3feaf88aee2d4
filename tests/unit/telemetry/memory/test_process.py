"""The memory of this process."""

from turnwire.telemetry.memory.process import resident_bytes, this_process, trim


def test_this_process_has_memory() -> None:
    """Where the system tells it; giving back what is kept never fails."""
    trim()
    assert (resident_bytes() or 2**20) >= 2**20


def test_what_is_used_is_a_part_of_what_is_held() -> None:
    """Where the C library tells it."""
    memory = this_process()
    assert memory is None or 0 < memory.used() < memory.held()
