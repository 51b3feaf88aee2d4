"""What parses bytes of strangers costs what the bytes cost, and not their square. Runs where it is asked for."""

import os

import pytest

from tests.support.fuzzing.growth import WORST_RATIO, pumps, ratio
from tests.support.fuzzing.targets import NAMES, target

PUMPS = int(os.environ.get("TURNWIRE_GROWTHS", "0"))
"""Inputs of each target: pieces of its examples, many times."""


PACED = {"mcp_lines"}
"""What comes in small pieces is read at a pace, so it takes its time whatever it costs."""


@pytest.mark.skipif(not PUMPS, reason="TURNWIRE_GROWTHS is not set")
@pytest.mark.timeout(300 + 20 * PUMPS)
@pytest.mark.parametrize("name", sorted(set(NAMES) - PACED))
def test_cost_does_not_grow_faster_than_the_input(name: str) -> None:
    """Four times as much of the same takes at most about four times as long."""
    chosen = target(name)
    for pump in pumps([*chosen.examples()], PUMPS):
        assert ratio(chosen.check, pump) < WORST_RATIO, pump
