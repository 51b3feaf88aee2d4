"""Repairs: differences between what is stored and what a model is sent.

Stored messages never change. Whatever leaves something out of a request, or sends something else in its place, says so
with a repair, so that people can see why a model does not know what they see.
"""

from collections.abc import Mapping
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
    """A kind of part that this type of message cannot hold."""
    SYSTEM_AS_USER_TEXT = "SYSTEM_AS_USER_TEXT"
    CONVERSATION_CONTINUES = "CONVERSATION_CONTINUES"
    """The user is made to speak where the API wants it and nobody has."""
    RESULTS_ANSWERED = "RESULTS_ANSWERED"
    """The model is made to speak between results of tools and the user, where the API wants it."""
    REASONING_STANDS_IN = "REASONING_STANDS_IN"
    """A blank stands in for reasoning that the answer does not have, where the API wants some."""
    TRAILING_SPACE = "TRAILING_SPACE"
    OPTION_NOT_TAKEN = "OPTION_NOT_TAKEN"
    SCHEMA_NO_OBJECT = "SCHEMA_NO_OBJECT"
    """A tool's schema that is no JSON object."""


_EXPLANATIONS: Mapping[RepairReason, str] = {
    RepairReason.HOST_MESSAGE: "Messages of the host are shown to people and never reach a model.",
    RepairReason.QUEUED_MESSAGE: "The message waits; its turn has not started.",
    RepairReason.STREAMING_MESSAGE: "The message is still being written.",
    RepairReason.EMPTY: "There is only blank text in it, and providers refuse that.",
    RepairReason.CUT_CALL: "The call of {name} was cut before it was complete, so it was never run.",
    RepairReason.OPEN_CALL: "The call of {name} has no result yet, and no API takes a call without its result.",
    RepairReason.UNSEALED_REASONING: "Its provider takes back only reasoning that it sealed, in complete answers.",
    RepairReason.UNSEALED_CONTENT: "The provider left nothing that can go back to it, or the answer was cut.",
    RepairReason.RESULT_SHOWN_WITH_CALL: "The result of {call_id!r} is sent with the call that it answers.",
    RepairReason.COMPACTED: "A summary stands in its place.",
    RepairReason.REASONING_OF_ANOTHER_MODEL: "Reasoning goes back only to the provider, API and model that made it.",
    RepairReason.STATE_OF_ANOTHER_MODEL: "Only the provider, API and model that made this content understand it.",
    RepairReason.UNUSABLE_STATE: "What the provider left with this part is not in a form that can go back to it.",
    RepairReason.REASONING_NOT_TAKEN: "This API takes no readable reasoning back here.",
    RepairReason.REASONING_LEADS_NOWHERE: "What this reasoning led to is not sent, and reasoning alone is refused.",
    RepairReason.PREFIX_CHANGED: (
        "The answer was made with another system prompt, other tools or other messages before it, and the provider "
        "refuses signed content after anything else."
    ),
    RepairReason.HALF_OF_HOSTED_CALL: "A call of a tool that the provider runs is refused without its result.",
    RepairReason.ARGUMENTS_NO_OBJECT: (
        "The arguments of this call of {name} are not a JSON object, and no API takes them back; the model reads the "
        "result as text."
    ),
    RepairReason.RESULT_WITHOUT_CALL: "The call {call_id!r} is not part of the request, so its result is sent as text.",
    RepairReason.ID_MAPPED: "The API does not take the call id {call_id!r} here; {wire_id} is sent.",
    RepairReason.NAME_MAPPED: "The API does not take the tool name {name!r}; {wire_name} is sent.",
    RepairReason.FILE_NOT_SHOWN: "This model cannot be shown {mime}; a line names the file.",
    RepairReason.FILE_NOT_AVAILABLE: "The bytes of the file are gone; a line names it.",
    RepairReason.MISPLACED: "A message of this type cannot hold a part of this kind.",
    RepairReason.SYSTEM_AS_USER_TEXT: "The API takes system messages only at the start; this one goes as marked text.",
    RepairReason.CONVERSATION_CONTINUES: "The API wants the user to speak here, so the user says {text!r}.",
    RepairReason.RESULTS_ANSWERED: "The API wants the model to speak before the user does, so it says {text!r}.",
    RepairReason.REASONING_STANDS_IN: "The API wants reasoning with this answer, which has none that it takes.",
    RepairReason.TRAILING_SPACE: "The API refuses white space at the end of an answer that goes on.",
    RepairReason.OPTION_NOT_TAKEN: "{option} {value}: {why}.",
    RepairReason.SCHEMA_NO_OBJECT: "The schema of the tool {name!r} is not a JSON object; it takes any arguments.",
}
"""One sentence for each reason; `explain` fills in the names."""


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


def explain(reason: RepairReason, **details: object) -> str:
    """Returns the sentence for people; `details` are the names that the reason's sentence mentions."""
    return _EXPLANATIONS[reason].format(**details)
