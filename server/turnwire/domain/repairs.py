"""Repairs: differences between what is stored and what a model is sent.

Stored messages never change. Whatever leaves something out of a request, or sends something else in its place, says so
with a repair, so that people can see why a model does not know what they see.
"""

from enum import StrEnum

from msgspec import Struct


class RepairAction(StrEnum):
    """What was done."""

    DROPPED = "dropped"
    REPLACED = "replaced"
    """By something that says as much as can be said."""
    ADDED = "added"


class RepairReason(StrEnum):
    """Why, as a stable word. Values may be added."""

    HOST_MESSAGE = "HOST_MESSAGE"
    """Host messages never reach a model."""
    QUEUED_MESSAGE = "QUEUED_MESSAGE"
    STREAMING_MESSAGE = "STREAMING_MESSAGE"
    EMPTY = "EMPTY"
    """Blank text, or a message without parts."""
    CUT_CALL = "CUT_CALL"
    """A tool call that was never complete."""
    OPEN_CALL = "OPEN_CALL"
    """A tool call that waits for its result."""
    UNSEALED_REASONING = "UNSEALED_REASONING"
    """Reasoning without its provider's seal, or of an answer that was cut."""
    UNSEALED_CONTENT = "UNSEALED_CONTENT"
    """Content that only its provider understands, of an answer that was cut."""
    RESULT_SHOWN_WITH_CALL = "RESULT_SHOWN_WITH_CALL"
    """A tool result that goes with its call already."""
    COMPACTED = "COMPACTED"
    """A summary stands for the message."""


class Repair(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One difference."""

    action: RepairAction
    reason: str
    """Stable upper-case word."""
    explanation: str
    """A sentence for people."""
    message_id: str = ""
    """"" when it is about the request as a whole."""
    part_index: int | None = None
    """None when it is about the whole message."""
