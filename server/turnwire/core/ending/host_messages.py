"""Host messages that the server writes: what happened to a turn, kept in the conversation for people.

Models never see them.
"""

import json
from collections.abc import Mapping
from datetime import datetime

from turnwire.core.ending.closing import Ending
from turnwire.core.settings import CoreSettings
from turnwire.core.work import Work
from turnwire.domain.conversation.events import MessageAdded
from turnwire.domain.conversation.messages import FinishReason, Message, MessageStatus, MessageType, Part, Text
from turnwire.domain.conversation.turns import Turn
from turnwire.domain.ids import IdMaker
from turnwire.ports.commit import NewEvent, PutMessage

_TOLD = {
    FinishReason.ABORTED: ("turn_aborted", "The turn was aborted."),
    FinishReason.INTERRUPTED: ("turn_interrupted", "The answer was cut off."),
    FinishReason.ERROR: ("turn_failed", "The turn failed."),
    FinishReason.CONTEXT_FULL: ("context_full", "The conversation does not fit the model's context window."),
    FinishReason.MAX_STEPS: ("max_steps", "The turn ended at its limit of steps."),
    FinishReason.BUDGET: ("budget_exhausted", "The turn ended because its budget is used up."),
}
"""How a turn ended that did not end normally: a word for programs, a sentence for people."""


def note_ending(turn: Turn, ending: Ending, now: datetime, settings: CoreSettings, new_id: IdMaker) -> Work:
    """Returns the work that notes in the conversation how a turn ended; empty when it ended normally."""
    told = _TOLD.get(ending.finish_reason)
    if told is None:
        return Work()
    event, sentence = told
    facts = {"event": event}
    if ending.failure is not None:
        facts["reason"] = ending.failure.reason
        sentence = f"{sentence[:-1]}: {ending.failure.message}"
    return note(turn, sentence, facts, now, settings=settings, new_id=new_id)


def note(
    turn: Turn, text: str, facts: Mapping[str, object], now: datetime, *, settings: CoreSettings, new_id: IdMaker
) -> Work:
    """Returns the work that adds a HOST message to a turn's conversation; empty when the configuration turns them off.

    Args:
        turn: The turn it is about.
        text: A sentence for people.
        facts: Facts for programs; become the message's metadata.
        now: When it happened.
        settings: Say whether such messages are wanted.
        new_id: Makes the ids of the message and its part.
    """
    if not settings.host_messages:
        return Work()
    message = Message(
        message_id=new_id("msg"),
        session_id=turn.session_id,
        type=MessageType.HOST,
        status=MessageStatus.COMPLETE,
        created_at=now,
        updated_at=now,
        parts=(Part(part_id=new_id("prt"), index=0, content=Text(text)),),
        turn_id=turn.turn_id,
        metadata_json=json.dumps(facts),
    )
    return Work((PutMessage(message),), (NewEvent(MessageAdded(message), turn.turn_id),))
