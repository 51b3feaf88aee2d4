"""The answer to an accepted request."""

import msgspec


class Receipt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The response to an accepted request. Stored with a named request, and returned again to retries of it."""

    session_id: str
    """"" when the request was about an upload."""
    message_id: str = ""
    """"" when the request stored none."""
    queued_message_id: str = ""
    """The message that stands for the turn while it waits, when that is not `message_id` alone; "" for none."""
    turn_id: str = ""
    """"" when no turn was started."""
    queued: bool = False
    queue_position: int = 0
    """Its place among the waiting messages, from 1; 0 when its turn started at once."""
    sequence: int = 0
    """The session's head just before the message's events. The store keeps it apart from the receipt."""
    lease_id: str = ""
    """"" when the request gave none."""
    upload_id: str = ""
    """"" when the request was about a session."""
    duplicate: bool = False
    """True when the same request was accepted before and this is its first receipt."""
