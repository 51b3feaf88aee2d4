"""Parts as rows: their texts stand once, as raw UTF-8 beside the JSON of all else.

A display form is `messages.display` and then of each part `shown`, `text`, `shown_between` and `output`, so that SQLite
joins it without reading JSON.

The text of a part that streams goes on in the rows of `part_growth`, so that a save costs what is new. Whoever writes
`text` writes all of it, and a trigger removes those rows; only `parts.grown` says that there are any.
"""

from typing import NamedTuple

import msgspec

from turnwire.domain.conversation.messages import Part
from turnwire.domain.conversation.texts import Texts, set_texts, texts_of, without_texts
from turnwire.ports.codec import ShownPart

_TEXT = (
    "CASE WHEN parts.grown > 0 THEN CAST(coalesce(parts.text, x'') || (SELECT group_concat(grown_text, '') FROM ("
    "SELECT part_growth.text AS grown_text FROM part_growth WHERE part = parts.id ORDER BY at)) AS BLOB)"
    " ELSE parts.text END"
)
"""The text of a part with its growth, as SQL. NULL where it has none, or its growth is lost."""

PART_COLUMNS = f"parts.body, {_TEXT}, parts.output"
"""What `part_of` takes."""

PART_OUTLINE = f"json_remove(parts.body, '$.provider_state'), {_TEXT}, parts.output"
"""The same without what is for the provider alone, of which an answer may have 32 MiB."""

NO_PARTS = "NULL, NULL, NULL"
"""The same for messages without their parts."""

PART_BYTES = (
    "length(CAST(parts.body AS BLOB)) + coalesce(length(parts.text), 0) + coalesce(length(parts.output), 0)"
    " + parts.grown"
)
"""What a part counts in `sessions.stored_bytes`, as SQL."""

DISPLAY_BYTES = "messages.display_bytes"
"""Length of a message's whole display form, as SQL."""

MESSAGE_BYTES = f"(SELECT CAST(total({PART_BYTES}) AS INTEGER) FROM parts WHERE message = messages.id)"
"""What is stored of the parts of a message, as SQL."""

PAGED_BYTES = f"max({DISPLAY_BYTES}, {MESSAGE_BYTES} / 16)"
"""What a message counts in a page of outlines, as SQL: a page reads 56 MB at most."""

DISPLAY = (
    "CASE WHEN length(display) = 0 THEN x'' ELSE CAST(display || coalesce((SELECT group_concat(piece, '') FROM ("
    f"SELECT shown || coalesce({_TEXT}, x'') || coalesce(shown_between || output, x'') AS piece FROM parts"
    " WHERE parts.message = messages.id ORDER BY part_index)), '') AS BLOB) END"
)
"""A message's whole display form, as SQL. SQLite joins BLOBs unchanged and group_concat keeps the order."""

_encode = msgspec.json.Encoder().encode
_part = msgspec.json.Decoder(Part).decode


class PartRow(NamedTuple):
    """The columns of a part that say what it is and how it is shown."""

    body: str
    text: bytes | None
    output: bytes | None
    shown: bytes
    shown_between: bytes | None


def part_row(part: Part, shown: ShownPart) -> PartRow:
    """Returns how a part is stored."""
    text, output = (None if one is None else one.encode() for one in texts_of(part))
    body = _encode(without_texts(part)).decode()
    return PartRow(body, text, output, shown.before, shown.between or None)


def grown_row(part: Part, shown: ShownPart) -> tuple[str, bytes, bytes | None]:
    """Returns what changes of a stored part besides its text: `body`, `shown` and `shown_between`."""
    return _encode(without_texts(part)).decode(), shown.before, shown.between or None


def part_of(body: str, text: bytes | None, output: bytes | None) -> Part:
    """Returns a stored part. Raises ValueError (`msgspec.DecodeError`, UnicodeDecodeError) for a damaged one."""
    part = _part(body)
    if text is not None:
        set_texts(part, Texts(text.decode(), None if output is None else output.decode()))
    return part
