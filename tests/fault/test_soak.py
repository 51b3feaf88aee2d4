"""Everything at once for a while; the server then holds what it held before."""

import random
from pathlib import Path

import pytest

from tests.support.soak.run import soak

SECONDS = 20.0


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_all_that_churn_takes_is_given_back(tmp_path: Path, chance: random.Random) -> None:
    """Memory, descriptors, threads, tasks, files and the database, within the tolerances of `soak/held.py`."""
    soaked = await soak(tmp_path, SECONDS, chance.randrange(10**6), warm_seconds=5)
    assert soaked.leaks == [], f"{soaked.before.line()}\n{soaked.after.line()}\n{soaked.done}"
