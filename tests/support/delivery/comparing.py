"""The settled part of a conversation at one sequence, however far its growing texts are."""

from collections.abc import Iterable

from opencode.message.content_pb2 import MESSAGE_STATUS_STREAMING, PART_STATUS_STREAMING, SessionMessage
from tests.support.oracles.fold import held_text

SETTLED = ("success", "error", "cancelled")
"""States of a call that has its result."""


def settled(messages: Iterable[SessionMessage]) -> list[SessionMessage]:
    """Returns copies without what is stored or told apart from the durable events.

    These are the time of the last change; usage, model and request of an answer that is being written, its growing
    parts; and the lines that a running call logs.
    """
    copies = []
    for message in messages:
        copy = SessionMessage()
        copy.CopyFrom(message)
        copy.ClearField("update_time")
        if copy.status == MESSAGE_STATUS_STREAMING:
            copy.ClearField("usage")
            copy.ClearField("model_run")
            copy.ClearField("sent_context")
            parts = [part for part in copy.parts if part.status != PART_STATUS_STREAMING]
            copy.ClearField("parts")
            copy.parts.extend(parts)
        for part in copy.parts:
            if part.HasField("tool_use") and part.tool_use.status not in SETTLED:
                part.tool_use.ClearField("logs")
        copies.append(copy)
    return copies


def growing(messages: Iterable[SessionMessage]) -> dict[str, str]:
    """Returns the text of each part that is being written, by its id."""
    return {
        part.part_id: held_text(part)
        for message in messages
        if message.status == MESSAGE_STATUS_STREAMING
        for part in message.parts
        if part.status == PART_STATUS_STREAMING
    }


def difference(held: list[SessionMessage], stored: list[SessionMessage]) -> str:
    """Returns how two conversations of one sequence differ; "" when they do not.

    A text that grows may be longer on either side, and must not be another one.
    """
    here, there = settled(held), settled(stored)
    if here != there:
        ids = [[message.message_id for message in messages] for messages in (here, there)]
        if ids[0] != ids[1]:
            return f"the client holds the messages\n{ids[0]}\nand stored are\n{ids[1]}"
        one, other = next(pair for pair in zip(here, there, strict=True) if pair[0] != pair[1])
        return f"the client holds\n{one}\nand stored is\n{other}"
    texts = growing(stored)
    for part_id, text in growing(held).items():
        kept = texts.get(part_id, "")
        if not (text.startswith(kept) or kept.startswith(text)):
            return f"part {part_id} is {text!r} for the client, and {kept!r} is stored"
    return ""
