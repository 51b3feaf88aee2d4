"""Drafts: what an answer got since it was saved last, stored while it streams.

The drafts of a message in their order, folded into it, are the answer so far. They go when the message ends.
"""

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from turnwire.domain.conversation.messages import Message, Part, ToolUse
from turnwire.domain.conversation.texts import texts_of


class DraftPart(Struct, frozen=True, gc=False, omit_defaults=True):
    """A part that changed."""

    part: Part
    continues: bool = False
    """True when its text, or the arguments of a call, go on from those of the drafts before."""


class Draft(Struct, frozen=True, gc=False, omit_defaults=True):
    """What one save has."""

    message: Message
    """As it is now, without parts."""
    parts: tuple[DraftPart, ...] = ()


def fold(message: Message, drafts: Iterable[Draft]) -> Message:
    """Returns a message with its drafts, which follow each other."""
    newest = message
    parts = {part.index: part for part in message.parts}
    texts = dict[int, list[str]]()
    for draft in drafts:
        newest = draft.message
        for changed in draft.parts:
            part, text = changed.part, texts_of(changed.part).text or ""
            parts[part.index] = part
            if changed.continues:
                texts[part.index].append(text)
            else:
                texts[part.index] = [text]
    folded = (
        _with_text(part, "".join(texts[index])) if len(texts.get(index, ())) > 1 else part
        for index, part in sorted(parts.items())
    )
    return msgspec.structs.replace(newest, parts=tuple(folded))


def _with_text(part: Part, text: str) -> Part:
    content = part.content
    field = "input_json" if isinstance(content, ToolUse) else "text"
    return msgspec.structs.replace(part, content=msgspec.structs.replace(content, **{field: text}))
