"""Ids both ways: Maria's are UUIDs, Turnwire's a prefix and the same digits."""

import re

_ID = re.compile(r"(?:ses|msg)_([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{12})")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def uuid_of(turnwire_id: str) -> str:
    """Returns the UUID of a session or a message; an id of another form as it is."""
    found = _ID.fullmatch(turnwire_id)
    return turnwire_id if found is None else "-".join(found.groups())


def session_id_of(task_id: str) -> str:
    """Returns the session of a task; what is no UUID is the session's own id."""
    return f"ses_{task_id.replace('-', '').lower()}" if _UUID.fullmatch(task_id) else task_id
