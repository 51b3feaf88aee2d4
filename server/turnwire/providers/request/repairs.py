"""Records what a request builder leaves out, replaces or adds."""

from collections.abc import Mapping, Sequence

from turnwire.domain.conversation.messages import Message, Part
from turnwire.domain.repairs import Repair, RepairAction, RepairReason, explain


class RepairList:
    """The repairs of one request."""

    def __init__(self, messages: Sequence[Message]) -> None:
        """Takes the neutral request's messages, which give the order of the repairs."""
        self._position = {message.message_id: at for at, message in enumerate(messages)}
        self._found: list[Repair] = []

    def dropped(
        self, reason: RepairReason, message: Message | None = None, part: Part | None = None, **details: object
    ) -> None:
        """Records that a part, a message or something else is not sent; `details` complete the explanation."""
        self._note(RepairAction.DROPPED, reason, message, part, details)

    def replaced(
        self, reason: RepairReason, message: Message | None = None, part: Part | None = None, **details: object
    ) -> None:
        """Records that something else is sent in its place."""
        self._note(RepairAction.REPLACED, reason, message, part, details)

    def added(
        self, reason: RepairReason, message: Message | None = None, part: Part | None = None, **details: object
    ) -> None:
        """Records that something is sent that the request does not have; it comes before `message`."""
        self._note(RepairAction.ADDED, reason, message, part, details)

    def in_order(self) -> tuple[Repair, ...]:
        """Returns the repairs by message and part: whole messages before their parts, the whole request last."""
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
            explanation=explain(reason, **details),
            message_id=message.message_id if message else "",
            part_index=part.index if part else None,
        )
        self._found.append(repair)

    def _place(self, repair: Repair) -> tuple[int, int]:
        at = self._position.get(repair.message_id, len(self._position))
        return at, -1 if repair.part_index is None else repair.part_index
