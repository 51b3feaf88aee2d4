"""Limits on the size of what is read from a foreign archive."""

from msgspec import Struct


class ArchiveLimits(Struct, frozen=True, kw_only=True):
    """Limits of one archive. An archive over one of the first seven is rejected; a file that is too large
    is left out.
    """

    conversation_bytes: int = 128 * 2**20
    """JSON text of one conversation, which is in memory completely. Files in it are base64, so some fit."""
    values: int = 3_000_000
    """JSON values and keys of one conversation: small ones take far more memory than text."""
    depth: int = 100
    """Nested JSON containers. Arguments of tools are the deepest in practice."""
    messages: int = 100_000
    """Messages of one conversation."""
    entries: int = 50_000
    """Entries of a ZIP. An export with pictures of several years has a few thousand."""
    unpacked_bytes: int = 16 * 2**30
    """All entries of a ZIP together, and so each of them. They are read as a stream."""
    ratio: int = 200
    """Maximum ratio of an entry's size to its packed size. JSON reaches 20, a ZIP bomb 1,000."""
    file_bytes: int = 20 * 2**20
    """One file, as a message accepts it by default."""
    problems: int = 1_000
    """Problems reported for one conversation; of further ones only their number."""
