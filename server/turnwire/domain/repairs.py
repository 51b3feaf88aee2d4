"""Repairs: differences between what is stored and what a model gets.

Stored messages never change. Code that omits something from a request, or sends something else in its place, records a
repair, so that people can see why a model does not know what they see.
"""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct


class RepairAction(StrEnum):
    """The kinds of repair."""

    DROPPED = "dropped"
    REPLACED = "replaced"
    """By the closest form that can be sent."""
    ADDED = "added"


class RepairReason(StrEnum):
    """Why it was done, as a stable word. Values may be added."""

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
    """Reasoning without its provider's seal, or from an answer that was cut."""
    UNSEALED_CONTENT = "UNSEALED_CONTENT"
    """Content that only its provider understands, from an answer that was cut."""
    RESULT_SHOWN_WITH_CALL = "RESULT_SHOWN_WITH_CALL"
    """A tool result that is already sent with its call."""
    COMPACTED = "COMPACTED"
    """A summary replaces the message."""

    REASONING_OF_ANOTHER_MODEL = "REASONING_OF_ANOTHER_MODEL"
    """Or of another provider or API."""
    STATE_OF_ANOTHER_MODEL = "STATE_OF_ANOTHER_MODEL"
    """Other content that only its provider understands, or what it gave with a text, such as citations."""
    UNUSABLE_STATE = "UNUSABLE_STATE"
    """The provider's own content, in a form that cannot be sent back to it."""
    REASONING_NOT_TAKEN = "REASONING_NOT_TAKEN"
    """The API does not accept readable reasoning, or does not accept it here."""
    REASONING_LEADS_NOWHERE = "REASONING_LEADS_NOWHERE"
    """Nothing that follows it is sent."""
    PREFIX_CHANGED = "PREFIX_CHANGED"
    """Signed content of an answer whose earlier context has changed since."""
    HALF_OF_HOSTED_CALL = "HALF_OF_HOSTED_CALL"
    """A call of a provider-run tool without its result, or a result without its call."""
    ARGUMENTS_NO_OBJECT = "ARGUMENTS_NO_OBJECT"
    """A call whose arguments are not a JSON object; its result is sent as text."""
    RESULT_WITHOUT_CALL = "RESULT_WITHOUT_CALL"
    """A tool result whose call is not sent; it is sent as text."""
    ID_MAPPED = "ID_MAPPED"
    NAME_MAPPED = "NAME_MAPPED"
    """Recorded once for each name."""
    FILE_NOT_SHOWN = "FILE_NOT_SHOWN"
    """A line replaces it."""
    FILE_NOT_AVAILABLE = "FILE_NOT_AVAILABLE"
    """A line replaces it, because its bytes are gone."""
    MISPLACED = "MISPLACED"
    """A kind of part that this type of message cannot hold."""
    SYSTEM_AS_USER_TEXT = "SYSTEM_AS_USER_TEXT"
    CONVERSATION_CONTINUES = "CONVERSATION_CONTINUES"
    """A user message is added where the API requires one and there is none."""
    RESULTS_ANSWERED = "RESULTS_ANSWERED"
    """A model's message is added between tool results and the user's message, where the API requires one."""
    REASONING_STANDS_IN = "REASONING_STANDS_IN"
    """A blank stands in for reasoning that the answer does not have, where the API requires some."""
    SPEAKER_NAMED = "SPEAKER_NAMED"
    """The sender's name is added before a user message, where a conversation has more than one sender."""
    TRAILING_SPACE = "TRAILING_SPACE"
    OPTION_NOT_TAKEN = "OPTION_NOT_TAKEN"
    SCHEMA_NO_OBJECT = "SCHEMA_NO_OBJECT"
    """A tool's schema that is not a JSON object."""


_EXPLANATIONS: Mapping[RepairReason, str] = {
    RepairReason.HOST_MESSAGE: "Host messages are shown to people and never reach a model.",
    RepairReason.QUEUED_MESSAGE: "The message waits; its turn has not started.",
    RepairReason.STREAMING_MESSAGE: "The message is still being written.",
    RepairReason.EMPTY: "It has only blank text, which providers refuse.",
    RepairReason.CUT_CALL: "The call of {name} was cut before it was complete, so it was never run.",
    RepairReason.OPEN_CALL: "The call of {name} has no result yet, and no API accepts a call without its result.",
    RepairReason.UNSEALED_REASONING: "Its provider accepts only reasoning that it sealed, in complete answers.",
    RepairReason.UNSEALED_CONTENT: "The provider gave nothing that can be sent back to it, or the answer was cut.",
    RepairReason.RESULT_SHOWN_WITH_CALL: "The result of {call_id!r} is sent with its call.",
    RepairReason.COMPACTED: "A summary replaces it.",
    RepairReason.REASONING_OF_ANOTHER_MODEL: "Reasoning is sent back only to the provider, API and model that made it.",
    RepairReason.STATE_OF_ANOTHER_MODEL: "Only the provider, API and model that made this content understand it.",
    RepairReason.UNUSABLE_STATE: "The provider's data of this part is not in a form that can be sent back to it.",
    RepairReason.REASONING_NOT_TAKEN: "This API does not accept readable reasoning here.",
    RepairReason.REASONING_LEADS_NOWHERE: "What followed this reasoning is not sent, and reasoning alone is refused.",
    RepairReason.PREFIX_CHANGED: (
        "The answer was made after another system prompt, other tools or other messages, and the provider refuses "
        "signed content after a change."
    ),
    RepairReason.HALF_OF_HOSTED_CALL: "A call of a tool that the provider runs is refused without its result.",
    RepairReason.ARGUMENTS_NO_OBJECT: (
        "The arguments of this call of {name} are not a JSON object, and no API accepts them; the model reads the "
        "result as text."
    ),
    RepairReason.RESULT_WITHOUT_CALL: "{call} is not part of the request, so its result is sent as text.",
    RepairReason.ID_MAPPED: "The API does not accept the call id {call_id!r} here; {wire_id} is sent.",
    RepairReason.NAME_MAPPED: "The API does not accept the tool name {name!r}; {wire_name} is sent.",
    RepairReason.FILE_NOT_SHOWN: "This model cannot be shown {mime}; a line names the file.",
    RepairReason.FILE_NOT_AVAILABLE: "The bytes of the file are gone; a line names it.",
    RepairReason.MISPLACED: "A message of this type cannot hold a part of this kind.",
    RepairReason.SYSTEM_AS_USER_TEXT: "The API accepts system messages only at the start; this one is sent as text.",
    RepairReason.CONVERSATION_CONTINUES: "The API requires a user message here, so {text!r} is sent.",
    RepairReason.RESULTS_ANSWERED: "The API requires a model's message before the user's, so {text!r} is sent.",
    RepairReason.REASONING_STANDS_IN: "The API requires reasoning with this answer, which has none that it accepts.",
    RepairReason.SPEAKER_NAMED: "The conversation has more than one sender, so {text!r} is sent before the message.",
    RepairReason.TRAILING_SPACE: "The API refuses white space at the end of an answer that it continues.",
    RepairReason.OPTION_NOT_TAKEN: "{option} {value}: {why}.",
    RepairReason.SCHEMA_NO_OBJECT: "The schema of the tool {name!r} is not a JSON object; it takes any arguments.",
}
"""One sentence for each reason; `explain` fills in the details."""


class Repair(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One difference between what is stored and what is sent."""

    action: RepairAction
    reason: str
    """The value of a `RepairReason`."""
    explanation: str
    """A sentence for people."""
    message_id: str = ""
    """"" when it is about the request as a whole."""
    part_index: int | None = None
    """None when it is about the whole message."""


def explain(reason: RepairReason, **details: object) -> str:
    """Returns the sentence for people; `details` fill in the names that the reason's sentence mentions."""
    return _EXPLANATIONS[reason].format(**details)
