"""What tests of faults share."""

from pathlib import Path

import pytest

from tests.support.disk.failing import Disk, compiled


@pytest.fixture(scope="session")
def disk_shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled shim; tests that need it are skipped where there is none."""
    found = compiled(tmp_path_factory.mktemp("shim"))
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.fixture
def disk(disk_shim: Path, tmp_path: Path) -> Disk:
    """A disk that can fail."""
    return Disk(disk_shim, tmp_path)


@pytest.fixture
def recorded_disk(disk_shim: Path, tmp_path: Path) -> Disk:
    """A disk that can fail, and whose power can be cut at any moment."""
    return Disk(disk_shim, tmp_path, is_recorded=True)
