"""Archives that are brought in: the server's own format, and those of other systems."""

import io
from collections.abc import Iterable
from importlib import import_module

from tests.support.fakes.foreign_archives import EXAMPLES, NOW, PNG, as_json, as_lines, zipped
from tests.support.fuzzing.targets import Target
from turnwire.domain.errors import ArchiveInvalid
from turnwire.interop.archive.bounds import ArchiveLimits
from turnwire.interop.archives import READERS
from turnwire.interop.turnwire_lines.reading import LinesReader
from turnwire.ports.moving.archives import ArchiveReader

FORMATS = sorted(EXAMPLES)

for _name in FORMATS:  # readers are imported when they are used, which is too late for the fuzzer to follow them
    import_module(f"turnwire.interop.{_name}.reading")

MAX_LINE_BYTES = 100_000


def check_archive(data: bytes) -> None:
    """The first byte chooses a format; what follows is read or refused."""
    if data:
        _read(READERS[FORMATS[data[0] % len(FORMATS)]](lambda: NOW, ArchiveLimits()), data[1:])


def check_lines(data: bytes) -> None:
    """As `check_archive`, for the server's own format."""
    _read(LinesReader(MAX_LINE_BYTES), data)


def _read(reader: ArchiveReader, data: bytes) -> None:
    try:
        for record in reader.read(io.BytesIO(data), {}):
            assert record is not None
    except ArchiveInvalid as error:
        assert len(error.message) < 1000 and error.message.encode()


def _foreign() -> Iterable[bytes]:
    for number, name in enumerate(FORMATS):
        yield bytes((number,)) + as_json([EXAMPLES[name]])
        yield bytes((number,)) + as_lines(EXAMPLES[name], EXAMPLES[name])
    for name in ("chatgpt", "claude"):
        packed = zipped(conversations_dot_json=as_json([EXAMPLES[name]]), **{"file-Abc1_dot_png": PNG})
        yield bytes((FORMATS.index(name),)) + packed


def _own() -> Iterable[bytes]:
    from tests.support.fuzzing.targets.own_archive import example

    yield example()


TARGETS = {"archive": Target(check_archive, _foreign), "archive_lines": Target(check_lines, _own)}
