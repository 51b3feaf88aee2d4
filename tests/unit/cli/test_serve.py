"""What a server does to its process."""

import sys

from turnwire.cli.serve import share_interpreter


def test_threads_of_the_storage_get_the_interpreter_soon() -> None:
    """Ten times sooner than Python has it: each of their statements waits for the event loop."""
    before = sys.getswitchinterval()
    try:
        share_interpreter()
        assert round(sys.getswitchinterval(), 6) == 0.0005
    finally:
        sys.setswitchinterval(before)
