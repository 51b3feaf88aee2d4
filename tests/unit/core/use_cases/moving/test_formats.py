"""The formats of archives by their names."""

import pytest

from turnwire.core.use_cases.moving.formats import OWN, Formats
from turnwire.domain.errors import InvalidRequest
from turnwire.ports.moving.archives import ArchiveFormat, ArchiveReader, ArchiveWriter


class _Reader(ArchiveReader):
    """Reads nothing."""


def _writer(include_files: bool) -> ArchiveWriter:
    raise AssertionError("nothing is written")


READER = _Reader()
FORMATS = Formats(
    {"read": ArchiveFormat(READER, None), "written": ArchiveFormat(None, _writer), OWN: ArchiveFormat(READER, _writer)}
)


@pytest.mark.parametrize("name", ["", OWN, "read"])
def test_a_format_that_is_read_has_a_reader(name: str) -> None:
    """No name is Turnwire's own."""
    assert FORMATS.reader(name) is READER


@pytest.mark.parametrize("name", ["", OWN, "written"])
def test_a_format_that_is_written_has_a_writer(name: str) -> None:
    """No name is Turnwire's own."""
    assert FORMATS.writer(name) is _writer


@pytest.mark.parametrize("name", ["written", "nothing"])
def test_who_asks_for_another_reader_is_told_which_there_are(name: str) -> None:
    """Those alone that can be read."""
    with pytest.raises(InvalidRequest, match=r"is not one of read, turnwire$"):
        FORMATS.reader(name)


@pytest.mark.parametrize("name", ["read", "nothing"])
def test_who_asks_for_another_writer_is_told_which_there_are(name: str) -> None:
    """Those alone that can be written."""
    with pytest.raises(InvalidRequest, match=r"is not one of turnwire, written$"):
        FORMATS.writer(name)
