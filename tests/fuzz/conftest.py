"""What holds for all targets."""

from collections.abc import Iterator

import pytest

from tests.support.fuzzing.targets.running import end


@pytest.fixture(autouse=True, scope="module")
def ending() -> Iterator[None]:
    """Ends what the targets started."""
    yield
    end()
