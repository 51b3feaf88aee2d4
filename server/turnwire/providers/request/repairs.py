"""Collects what a request builder leaves out, replaces or adds."""

from collections.abc import Mapping, Sequence

from turnwire.domain.conversation.messages import Message, Part
from turnwire.domain.repairs import Repair, RepairAction, RepairReason

_EXPLANATIONS: Mapping[RepairReason, str] = {
    RepairReason.HOST_MESSAGE: "Messages of the host are shown to people and never reach a model.",
    RepairReason.EMPTY: "The text is blank, and some APIs refuse blank text.",
    RepairReason.CUT_CALL: "The call of {name} was never complete, so it is not sent back.",
    RepairReason.OPEN_CALL: "The call of {name} has no result yet, and no API takes a call without its result.",
    RepairReason.UNSEALED_REASONING: "Its provider takes back only reasoning that it sealed, in answers that it ended.",
    RepairReason.UNSEALED_CONTENT: "The provider left nothing that could go back to it, or the answer was cut.",
    RepairReason.RESULT_SHOWN_WITH_CALL: "The result of {call_id!r} goes with its call already.",
    RepairReason.REASONING_OF_ANOTHER_MODEL: "Reasoning goes back only to the provider, API and model that made it.",
    RepairReason.STATE_OF_ANOTHER_MODEL: "Only the provider, API and model that made it understand this content.",
    RepairReason.UNUSABLE_STATE: "What the provider left with this part is not in a form that can go back to it.",
    RepairReason.REASONING_NOT_TAKEN: "This API takes no readable reasoning back here.",
    RepairReason.REASONING_LEADS_NOWHERE: "What this reasoning led to is not sent, and alone it is refused.",
    RepairReason.PREFIX_CHANGED: (
        "The answer was made with another system prompt, other tools or other messages before it, and the provider "
        "refuses signed content that then stands elsewhere."
    ),
    RepairReason.HALF_OF_HOSTED_CALL: "A call of a tool that the provider runs is refused without its result.",
    RepairReason.ARGUMENTS_NO_OBJECT: (
        "The arguments of this call of {name} are no JSON object, and no API takes them back; the model reads the "
        "result as text."
    ),
    RepairReason.RESULT_WITHOUT_CALL: "The call {call_id!r} is not part of the request, so its result is sent as text.",
    RepairReason.ID_MAPPED: "The API does not take the call id {call_id!r} here; {wire_id} is sent.",
    RepairReason.NAME_MAPPED: "The API does not take the tool name {name!r}; {wire_name} is sent.",
    RepairReason.FILE_NOT_SHOWN: "This model cannot be shown {mime}; a line names the file.",
    RepairReason.FILE_NOT_AVAILABLE: "The bytes of the file are not there; a line names it.",
    RepairReason.MISPLACED: "A message of this speaker cannot hold a part of this kind.",
    RepairReason.SYSTEM_AS_USER_TEXT: "The API takes system messages only at the start; this one goes as marked text.",
    RepairReason.CONVERSATION_CONTINUES: "The API wants the user to speak here, so the user says {text!r}.",
    RepairReason.RESULTS_ANSWERED: "The API wants the model to speak before the user does, so it says {text!r}.",
    RepairReason.REASONING_STANDS_IN: "The API wants reasoning with this answer, and there is none that it takes.",
    RepairReason.TRAILING_SPACE: "The API refuses white space at the end of an answer that goes on.",
    RepairReason.OPTION_NOT_TAKEN: "{option} {value}: {why}.",
    RepairReason.SCHEMA_NO_OBJECT: "The schema of the tool {name!r} is no JSON object; it takes any arguments.",
}


class RepairList:
    """The repairs of one request."""

    def __init__(self, messages: Sequence[Message]) -> None:
        """Takes the neutral request's messages, in whose order the repairs come."""
        self._position = {message.message_id: at for at, message in enumerate(messages)}
        self._found: list[Repair] = []

    def dropped(
        self, reason: RepairReason, message: Message | None = None, part: Part | None = None, **details: object
    ) -> None:
        """Notes that a part, a message or something of the whole request is not sent; `details` fill the sentence."""
        self._note(RepairAction.DROPPED, reason, message, part, details)

    def replaced(
        self, reason: RepairReason, message: Message | None = None, part: Part | None = None, **details: object
    ) -> None:
        """Notes that something else is sent in its place."""
        self._note(RepairAction.REPLACED, reason, message, part, details)

    def added(
        self, reason: RepairReason, message: Message | None = None, part: Part | None = None, **details: object
    ) -> None:
        """Notes that something is sent that the request does not hold; `message` is the one that it stands before."""
        self._note(RepairAction.ADDED, reason, message, part, details)

    def in_order(self) -> tuple[Repair, ...]:
        """Returns the repairs by message and part; those of a whole message come first in it, of the request last."""
        return tuple(sorted(self._found, key=self._place))

    def _note(
        self,
        action: RepairAction,
        reason: RepairReason,
        message: Message | None,
        part: Part | None,
        details: Mapping[str, object],
    ) -> None:
        repair = Repair(
            action=action,
            reason=reason.value,
            explanation=_EXPLANATIONS[reason].format(**details),
            message_id=message.message_id if message else "",
            part_index=part.index if part else None,
        )
        self._found.append(repair)

    def _place(self, repair: Repair) -> tuple[int, int]:
        at = self._position.get(repair.message_id, len(self._position))
        return at, -1 if repair.part_index is None else repair.part_index
