"""Sealed text: what the server gives to callers and takes back, and only the server reads.

The tag is a keyed digest of the context and the content, and the content is encrypted under the tag. Equal contents are
equal when sealed, which is all that a reader learns. What was not sealed with the same key and context does not open.
"""

import hashlib
import hmac
import struct

TAG_BYTES = 10

MAX_CONTENT_BYTES = 4096
"""Of the content of a sealed text, such as a resume token: far more than a place in the log takes."""

_BLOCK_BYTES = hashlib.blake2b.MAX_DIGEST_SIZE


class Seal:
    """Seals and opens with one key. Stateless."""

    def __init__(self, key: bytes) -> None:
        """Takes a secret of up to 64 bytes."""
        self._key = key

    def close(self, context: str, content: bytes) -> bytes:
        """Returns the content, at most MAX_CONTENT_BYTES, sealed: TAG_BYTES longer."""
        tag = self._tag(context, content)
        return tag + self._encrypted(tag, content)

    def open(self, context: str, sealed: bytes) -> bytes | None:
        """Returns the content; None when it was not sealed with this key and context."""
        tag, encrypted = sealed[:TAG_BYTES], sealed[TAG_BYTES:]
        if not 0 < len(encrypted) <= MAX_CONTENT_BYTES:
            return None
        content = self._encrypted(tag, encrypted)
        return content if hmac.compare_digest(tag, self._tag(context, content)) else None

    def _tag(self, context: str, content: bytes) -> bytes:
        encoded = context.encode()
        data = struct.pack(">Q", len(encoded)) + encoded + content
        return hashlib.blake2b(data, digest_size=TAG_BYTES, key=self._key, person=b"tag").digest()

    def _encrypted(self, tag: bytes, content: bytes) -> bytes:
        """Encrypts, and decrypts what is encrypted."""
        stream = b"".join(
            self._stream(tag, start, min(_BLOCK_BYTES, len(content) - start))
            for start in range(0, len(content), _BLOCK_BYTES)
        )
        return (int.from_bytes(content) ^ int.from_bytes(stream)).to_bytes(len(content))  # a loop takes 2 µs

    def _stream(self, tag: bytes, start: int, size: int) -> bytes:
        """Returns what a block is encrypted with. The first one is that of all seals before there were longer ones."""
        block = start.to_bytes(4) if start else b""
        return hashlib.blake2b(tag + block, digest_size=size, key=self._key, person=b"content").digest()
