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

    REASONING_OF_ANOTHER_MODEL = "REASONING_OF_ANOTHER_MODEL"
    """Or of another provider or API."""
    STATE_OF_ANOTHER_MODEL = "STATE_OF_ANOTHER_MODEL"
    """Other content that only its provider understands, or what it gave with a text, such as citations."""
    UNUSABLE_STATE = "UNUSABLE_STATE"
    """The provider's own content, in a form that cannot go back to it."""
    REASONING_NOT_TAKEN = "REASONING_NOT_TAKEN"
    """The API takes no readable reasoning, or not any more."""
    REASONING_LEADS_NOWHERE = "REASONING_LEADS_NOWHERE"
    """Nothing that is sent follows it."""
    PREFIX_CHANGED = "PREFIX_CHANGED"
    """Signed content of an answer that was made with something else before it."""
    HALF_OF_HOSTED_CALL = "HALF_OF_HOSTED_CALL"
    """A call of a tool that the provider runs without its result, or the reverse."""
    ARGUMENTS_NO_OBJECT = "ARGUMENTS_NO_OBJECT"
    """A call whose arguments are no JSON object; its result is told as text."""
    RESULT_WITHOUT_CALL = "RESULT_WITHOUT_CALL"
    """A tool result whose call is not sent; it is told as text."""
    ID_MAPPED = "ID_MAPPED"
    NAME_MAPPED = "NAME_MAPPED"
    """Told once for a name."""
    FILE_NOT_SHOWN = "FILE_NOT_SHOWN"
    """A line stands for it."""
    FILE_NOT_AVAILABLE = "FILE_NOT_AVAILABLE"
    """A line stands for it: its bytes are gone."""
    MISPLACED = "MISPLACED"
    """A part of a kind that this speaker has not."""
    SYSTEM_AS_USER_TEXT = "SYSTEM_AS_USER_TEXT"
    CONVERSATION_CONTINUES = "CONVERSATION_CONTINUES"
    """The user is made to speak where the API wants it and nobody has."""
    RESULTS_ANSWERED = "RESULTS_ANSWERED"
    """The model is made to speak between results of tools and the user, where the API wants it."""
    REASONING_STANDS_IN = "REASONING_STANDS_IN"
    """A blank is sent as reasoning of an answer whose own there is not, where the API wants some."""
    TRAILING_SPACE = "TRAILING_SPACE"
    OPTION_NOT_TAKEN = "OPTION_NOT_TAKEN"
    SCHEMA_NO_OBJECT = "SCHEMA_NO_OBJECT"
    """A tool's schema that is no JSON object."""


class Repair(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One difference."""

    action: RepairAction
    reason: str
    """A `RepairReason`, or a later one."""
    explanation: str
    """A sentence for people."""
    message_id: str = ""
    """"" when it is about the request as a whole."""
    part_index: int | None = None
    """None when it is about the whole message."""
