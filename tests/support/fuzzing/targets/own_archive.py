"""An archive in the server's own format."""

from tests.support.oracles.archives import golden_records
from turnwire.interop.turnwire_lines.writing import LinesWriter


def example() -> bytes:
    """Returns one with every kind of line."""
    writer = LinesWriter(include_files=True)
    return b"".join(map(writer.write, golden_records())) + writer.end()
