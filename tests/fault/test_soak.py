"""Everything at once for half a minute; the server then holds what it held before."""

import os
from pathlib import Path

import pytest

from tests.support.soak.run import soak

SECONDS = float(os.environ.get("TURNWIRE_SOAK_SECONDS", "20"))
SEED = int(os.environ.get("TURNWIRE_SOAK_SEED", "1"))

pytestmark = [
    pytest.mark.skipif("TURNWIRE_TEST_SOAK" not in os.environ, reason="takes a minute: set TURNWIRE_TEST_SOAK=1"),
    pytest.mark.timeout(SECONDS + 600),
]


async def test_all_that_churn_takes_is_given_back(tmp_path: Path) -> None:
    """Memory, descriptors, threads, tasks, files and the database, within the tolerances of `held`."""
    soaked = await soak(tmp_path, SECONDS, SEED, warm_seconds=5)
    assert soaked.leaks == [], f"{soaked.before.line()}\n{soaked.after.line()}\n{soaked.done}"
