"""File systems: interfaces of the kernel are known by type, wherever they are mounted."""

import os
from pathlib import Path

import pytest

from turnwire.core.disk import file_systems
from turnwire.core.disk.file_systems import kernel_interface
from turnwire.core.disk.opening import LOOK_ONLY

pytestmark = pytest.mark.skipif(LOOK_ONLY is None, reason="only Linux reports types")


def _interface(path: str | Path) -> str | None:
    assert LOOK_ONLY is not None
    descriptor = os.open(path, LOOK_ONLY)
    try:
        return kernel_interface(descriptor)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    ("path", "name"),
    [("/proc/self/environ", "proc"), ("/proc/cpuinfo", "proc"), ("/sys/kernel", "sysfs"), ("/dev/pts", "devpts")],
)
def test_interfaces_of_the_kernel_are_known(path: str, name: str) -> None:
    """By files and by folders."""
    if not Path(path).exists():
        pytest.skip(f"this system has no {path}")
    assert _interface(path) == name


@pytest.mark.parametrize("path", [".", "/", "/dev/shm"])
def test_data_is_no_interface_of_the_kernel(path: str, tmp_path: Path) -> None:
    """On a disk, in a container's layers, in memory."""
    assert _interface(tmp_path) is None
    if Path(path).exists():
        assert _interface(path) is None


@pytest.mark.parametrize(
    "kind",
    [0xEF53, 0x58465342, 0x9123683E, 0x2FC12FC1, 0x01021994, 0x6969, 0x01021997, 0x65735546, 0x794C7630, 0xFF534D42],
)
def test_file_systems_of_data_are_read(kind: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ext4, xfs, btrfs, zfs, tmpfs, nfs, 9p, fuse, overlay and cifs."""
    monkeypatch.setattr(file_systems, "file_system_type", lambda descriptor: kind)
    assert _interface(tmp_path) is None


def test_descriptor_that_is_closed_is_an_error(tmp_path: Path) -> None:
    """Nothing is taken for data because it cannot be asked."""
    descriptor = os.open(tmp_path, os.O_RDONLY)
    os.close(descriptor)
    with pytest.raises(OSError, match="Bad file descriptor"):
        kernel_interface(descriptor)
