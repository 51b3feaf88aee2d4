"""Records what a request builder leaves out, replaces or adds."""

from collections.abc import Mapping

from turnwire.domain.conversation.messages import Message, Part
from turnwire.domain.repairs import Repair, RepairAction, RepairReason, explain


class RepairList:
    """The repairs of one request. Messages are written in order, and `end_message` follows each."""

    def __init__(self) -> None:
        """Starts empty."""
        self.of_messages: list[Repair] = []
        """In the order of the messages and their parts; those of the current message in the order of recording."""
        self.of_request: list[Repair] = []
        """Those of the complete request."""
        self._begun = 0

    def dropped(
        self, reason: RepairReason, message: Message | None = None, part: Part | None = None, **details: object
    ) -> None:
        """Records that a part, a message or another element is not sent; `details` complete the explanation."""
        self._note(RepairAction.DROPPED, reason, message, part, details)

    def replaced(
        self, reason: RepairReason, message: Message | None = None, part: Part | None = None, **details: object
    ) -> None:
        """Records that something else is sent in its place."""
        self._note(RepairAction.REPLACED, reason, message, part, details)

    def added(
        self, reason: RepairReason, message: Message | None = None, part: Part | None = None, **details: object
    ) -> None:
        """Records an addition that the request does not have; it comes before `message`."""
        self._note(RepairAction.ADDED, reason, message, part, details)

    def begin_message(self) -> None:
        """Begins a message: repairs that are recorded until `end_message` belong to it."""
        self._begun = len(self.of_messages)

    def end_message(self) -> None:
        """Sorts the repairs of a message by its parts; those of the message itself come first."""
        if len(self.of_messages) > self._begun + 1:
            self.of_messages[self._begun :] = sorted(self.of_messages[self._begun :], key=_place)

    def in_order(self) -> tuple[Repair, ...]:
        """Returns the repairs by message and part: those of a message before those of its parts, those of the request
        last.
        """
        return (*self.of_messages, *self.of_request)

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
            explanation=explain(reason, **details),
            message_id=message.message_id if message else "",
            part_index=part.index if part else None,
        )
        (self.of_messages if message else self.of_request).append(repair)


def _place(repair: Repair) -> int:
    return -1 if repair.part_index is None else repair.part_index
