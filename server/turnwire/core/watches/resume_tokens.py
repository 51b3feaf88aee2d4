"""Resume tokens: the position at which a client resumes a watch, in a form that only the server reads.

A token contains the position of its holder, in one session or in the log of all sessions, and the moment in the history
of the log when it was issued. After a backup was restored, the moment shows whether the log still has the events that
the holder saw. Tokens are sealed, because positions count the events of all tenants, and each is sealed for one tenant.
No other module knows the content of a token. With several nodes too, the log of all sessions has one position: a watch
gets no event before which another one may still be stored.
"""

import base64
import binascii
import hashlib
import hmac
import struct

from msgspec import Struct

from turnwire.domain.errors import InvalidRequest
from turnwire.ports.store import Moment, Standing, Store

TAG_BYTES = 10

MAX_CONTENT_BYTES = 4096
"""Maximum size of a sealed text's content, such as a resume token: far more than an offset in the log takes."""

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
        """Encrypts, or decrypts what is encrypted."""
        stream = b"".join(
            self._stream(tag, start, min(_BLOCK_BYTES, len(content) - start))
            for start in range(0, len(content), _BLOCK_BYTES)
        )
        return (int.from_bytes(content) ^ int.from_bytes(stream)).to_bytes(len(content))  # a loop takes 2 µs

    def _stream(self, tag: bytes, start: int, size: int) -> bytes:
        """Returns the bytes that encrypt a block."""
        block = start.to_bytes(4) if start else b""
        return hashlib.blake2b(tag + block, digest_size=size, key=self._key, person=b"content").digest()


_FIELD = "resume_token"
_FORMAT = b"\x02"
_LAYOUT = struct.Struct(">5s8sQQ")
"""Digest of the session, timeline, order, position."""
_CHECK_BYTES = 2
_TOKEN_BYTES = len(_FORMAT) + TAG_BYTES + _LAYOUT.size + _CHECK_BYTES


class TokenPlace(Struct, frozen=True):
    """The content of a token."""

    after: int
    """Sequence of the last event that the holder has; for all sessions, its position."""
    standing: Standing
    """Whether the log still has the history in which the token was issued."""


_UNKNOWN = TokenPlace(0, Standing.UNKNOWN)

_Key = tuple[str, str | None, int, Moment]


class ResumeTokens:
    """Issues tokens and reads them. Every later version can read a token."""

    def __init__(self, store: Store) -> None:
        """Takes the store, which has the history of its log and the key of its tokens."""
        self._store = store
        self._seal = Seal(store.token_key)
        self._last: tuple[_Key, str] | None = None  # cache: many watchers need the same token

    def give(self, tenant: str, session_id: str | None, order: int, timeline: str = "") -> str:
        """Returns the token for a holder of all events up to a published one.

        Args:
            tenant: The holder's tenant.
            session_id: The session; None for all sessions of the tenant.
            order: The event's sequence, or its position for all sessions.
            timeline: The timeline of that position; "" for the newest one.
        """
        moment = self._store.moment(tenant)
        if session_id is None:
            moment = Moment(timeline or moment.timeline, order)
        return self._make(tenant, session_id, order, moment)

    async def give_reader(self, tenant: str, session_id: str, sequence: int) -> str:
        """Returns the token for a holder of a session as it was just read, at this sequence."""
        return self._make(tenant, session_id, sequence, await self._store.moment_after_reads(tenant, session_id))

    def read(self, token: str, tenant: str, session_id: str | None) -> TokenPlace:
        """Returns the content of a token. A token of another tenant, or of another database, is unknown.

        Raises:
            InvalidRequest: it is not a token, or not for this session (or for all sessions).
        """
        sealed = _decode(token)
        if sealed is None:
            raise InvalidRequest.of(_FIELD, "is not a token of this server")
        content = self._seal.open(tenant, sealed)
        if content is None:
            return _UNKNOWN
        scope, timeline, order, position = _LAYOUT.unpack(content)
        if scope != _scope(session_id):
            watched = "all sessions" if session_id is None else "this session"
            raise InvalidRequest.of(_FIELD, f"is not a token of a watch of {watched}")
        return TokenPlace(order, self._store.standing(Moment(timeline.hex(), position)))

    def _make(self, tenant: str, session_id: str | None, order: int, moment: Moment) -> str:
        key = (tenant, session_id, order, moment)
        if self._last is None or self._last[0] != key:
            timeline = bytes.fromhex(moment.timeline)
            content = _LAYOUT.pack(_scope(session_id), timeline, order, moment.position)
            data = _FORMAT + self._seal.close(tenant, content)
            self._last = (key, base64.urlsafe_b64encode(data + _check(data)).decode())
        return self._last[1]


def _decode(token: str) -> bytes | None:
    """Returns the sealed content of a token; None when the text is not a token."""
    try:
        data = base64.b64decode(token, altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        return None
    content, check = data[:-_CHECK_BYTES], data[-_CHECK_BYTES:]
    if len(data) != _TOKEN_BYTES or check != _check(content) or not content.startswith(_FORMAT):
        return None
    return content.removeprefix(_FORMAT)


def _scope(session_id: str | None) -> bytes:
    return hashlib.blake2b((session_id or "").encode(), digest_size=5).digest()


def _check(content: bytes) -> bytes:
    """Returns a checksum of the content: a damaged token is rejected, an unknown one is not."""
    return hashlib.blake2b(content, digest_size=_CHECK_BYTES).digest()
