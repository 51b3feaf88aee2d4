"""Display forms: made when they are read, and kept for the next reader."""

import threading
from collections import OrderedDict
from collections.abc import Generator, Iterable
from contextlib import closing

from turnwire.domain.conversation.messages import MessageStatus
from turnwire.domain.pages import MAX_PAGE_BYTES, encode_token
from turnwire.ports.codec import Codec
from turnwire.ports.pages import DisplayPage, Page
from turnwire.storage.sql.columns import PARTS_BYTES, WITH_PARTS, each_message, number, session_row, total
from turnwire.storage.sql.database import Database
from turnwire.storage.sql.pages import after_token, check_light, cut, fitting, limit_of, listing, order_of

MAX_KEPT_BYTES = 32 * 2**20
"""Maximum size of display forms in memory: about 30,000 short messages."""

_BARE_BYTES = 200
"""Memory charged per display form besides its bytes."""

_AT_ONCE = 500
"""Messages that are read together."""

_Row = tuple[int, int, int, int]
"""A message: its row, version, `queued` and place."""

_ROW = "id, version, queued, place"


class DisplayForms:
    """Keeps display forms by row and version of their messages. Used on the threads of reading connections."""

    def __init__(self, codec: Codec, max_bytes: int = MAX_KEPT_BYTES) -> None:
        """Takes the codec that makes them, and their maximum memory."""
        self._codec = codec
        self._max_bytes = max_bytes
        self._lock = threading.Lock()  # for all below
        self._frames = OrderedDict[tuple[int, int], bytes]()  # the last used at the end
        self._size_bytes = 0

    def frames(self, db: Database, rows: Iterable[_Row]) -> Generator[tuple[_Row, bytes]]:
        """Yields the display forms of messages, in order. Call it in the snapshot that has read the rows."""
        batch = list[_Row]()
        for row in rows:
            batch.append(row)
            if len(batch) == _AT_ONCE:
                yield from self._some(db, batch)
                batch = []
        yield from self._some(db, batch)

    def _some(self, db: Database, rows: list[_Row]) -> Iterable[tuple[_Row, bytes]]:
        found, missing = dict[int, bytes](), list[int]()
        with self._lock:
            for row, version, *_ in rows:
                frame = self._frames.get((row, version))
                if frame is None:
                    missing.append(row)
                else:
                    found[row] = frame
                    self._frames.move_to_end((row, version))
        if missing:
            versions = {row: version for row, version, *_ in rows}
            for row, frame, is_final in self._made(db, missing):
                found[row] = frame
                if is_final:
                    self._keep((row, versions[row]), frame)
        return ((row, found[row[0]]) for row in rows)

    def _made(self, db: Database, rows: list[int]) -> Iterable[tuple[int, bytes, bool]]:
        among, ids = f"messages.id {db.dialect.among}", db.dialect.keys(rows)
        with closing(each_message(db, among, (ids,), "messages.id", columns=WITH_PARTS)) as messages:
            for row, message in zip(sorted(rows), messages, strict=True):
                # drafts do not change the version
                yield row, self._codec.encode_display(message), message.status is not MessageStatus.STREAMING

    def _keep(self, key: tuple[int, int], frame: bytes) -> None:
        with self._lock:
            if key in self._frames:
                return
            self._frames[key] = frame
            self._size_bytes += len(frame) + _BARE_BYTES
            while self._size_bytes > self._max_bytes:
                _, oldest = self._frames.popitem(last=False)
                self._size_bytes -= len(oldest) + _BARE_BYTES


def display(
    db: Database, tenant: str, session_id: str, page: Page, forms: DisplayForms, *, max_bytes: int | None = None
) -> DisplayPage:
    """Returns joined display forms; see `TenantStore.display`. Raises HeavyRead: the messages have more bytes."""
    with db.snapshot():
        row = session_row(db, tenant, session_id)
        if page.size is None:
            return _whole_display(db, forms, row, page)
        where, parameters = after_token(session_id, page)
        parameters = (row, *parameters, limit_of(page))
        listed = f"FROM messages WHERE session = ? AND on_path = 1 {where} ORDER BY {order_of(page)} LIMIT ?"
        if max_bytes is not None:
            sizes = f"SELECT {total('size')} FROM (SELECT {PARTS_BYTES} AS size {listed}) AS sized"
            check_light(number(db, sizes, parameters), max_bytes)
        rows = db.rows(f"SELECT {_ROW} {listed}", parameters)
        shown, more = cut(rows, False, page)
        fit, left_out = fitting(forms.frames(db, shown), _frame_bytes, MAX_PAGE_BYTES)
        more = (more or left_out) and bool(fit)
        token = encode_token(listing(session_id, page), *fit[-1][0][2:]) if more else ""
        return DisplayPage(b"".join([frame for _, frame in fit]), token)


def _whole_display(db: Database, forms: DisplayForms, session: int, page: Page) -> DisplayPage:
    """Returns all display forms, or the newest that fit."""
    newest = f"SELECT {_ROW} FROM messages WHERE session = ? AND on_path = 1 ORDER BY queued DESC, place DESC"
    with closing(db.each(newest, (session,))) as rows:  # reads no further than fits
        fit, left_out = fitting(forms.frames(db, rows), _frame_bytes, page.max_bytes, refuses=True)
    frames = [frame for _, frame in fit]
    return DisplayPage(b"".join(frames if page.newest_first else frames[::-1]), "", left_out)


def _frame_bytes(framed: tuple[_Row, bytes]) -> int:
    return len(framed[1])
