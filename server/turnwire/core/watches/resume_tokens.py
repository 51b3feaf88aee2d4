"""Resume tokens: the place where a client resumes a watch, in a form that only the server reads.

A token contains the position of its holder, in one session or in the log of all sessions, and the moment in the history
of the log when it was issued. After a backup was restored, the moment shows whether the log still has the events that
the holder saw. Tokens are sealed, because positions count the events of all tenants, and each is sealed for one tenant.
No other module knows the content of a token, so a server with several nodes can add a format with a place for each.
"""

import base64
import binascii
import hashlib
import struct

from msgspec import Struct

from turnwire.core.watches.seal import TAG_BYTES, Seal
from turnwire.domain.errors import InvalidRequest
from turnwire.ports.store import Moment, Standing, Store

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

    def give(self, tenant: str, session_id: str | None, order: int) -> str:
        """Returns the token for a holder of all events up to a published one.

        Args:
            tenant: The holder's.
            session_id: The session; None for all sessions of the tenant.
            order: The event's sequence, or its position for all sessions.
        """
        moment = self._store.moment(tenant)
        if session_id is None:
            moment = Moment(moment.timeline, order)
        return self._make(tenant, session_id, order, moment)

    async def give_reader(self, tenant: str, session_id: str, sequence: int) -> str:
        """Returns the token for a holder of a session as it was just read, at this sequence."""
        return self._make(tenant, session_id, sequence, await self._store.moment_after_reads(tenant, session_id))

    def read(self, token: str, tenant: str, session_id: str | None) -> TokenPlace:
        """Returns the content of a token. That of another tenant, or of another database, is unknown.

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
    """Returns a checksum of the content: a damaged token is refused, an unknown one is not."""
    return hashlib.blake2b(content, digest_size=_CHECK_BYTES).digest()
