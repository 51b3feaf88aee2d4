"""Ending a turn with what is stored of it: after a crash, or when its own end could not be stored."""

from turnwire.core.ending.closing import Ending, end_turn
from turnwire.core.ending.host_messages import note_ending
from turnwire.core.environment import Environment
from turnwire.core.tools.permission_requests import closing_work
from turnwire.core.work import Work
from turnwire.domain.conversation.permissions import PermissionAnswer, PermissionChoice
from turnwire.domain.conversation.turns import Turn


async def end_stored_turn(environment: Environment, turn: Turn, ending: Ending) -> Work:
    """Returns the work that ends a turn that runs nowhere.

    Raises:
        StorageError: the database cannot be read.
    """
    now = environment.clock()
    stored = await environment.store.turn_messages(turn.turn_id)
    permissions = await environment.store.open_permissions(turn.session_id)
    further = closing_work(permissions, PermissionAnswer(PermissionChoice.CANCELLED))
    further += note_ending(environment, turn, ending, now)
    return end_turn(turn, [environment.priced(message) for message in stored], ending, now, further)
