"""Sessions that an adapter made for one request alone: lists of conversations leave them out."""

from opencode.session.session_pb2 import SessionInfo

DOOR_LABEL = "turnwire.door"
"""Label of such sessions, which are deleted after a while; its value names the adapter."""


def is_of_door(session: SessionInfo) -> bool:
    """Returns whether a session holds one request alone."""
    return DOOR_LABEL in session.settings.labels
