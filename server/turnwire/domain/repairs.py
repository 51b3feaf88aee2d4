"""Repairs: differences between what is stored and what a model is sent.

Stored messages never change. Whatever leaves something out of a request, or sends something else in its place, says so
with a repair, so that people can see why a model does not know what they see.
"""

from enum import StrEnum

from msgspec import Struct


class RepairAction(StrEnum):
    """What was done."""

    DROPPED = "dropped"
    REPLACED = "replaced"
    """By something that says as much as can be said."""
    ADDED = "added"


class Repair(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One difference."""

    action: RepairAction
    reason: str
    """Stable upper-case word."""
    explanation: str
    """A sentence for people."""
    message_id: str = ""
    """"" when it is about the request as a whole."""
    part_index: int | None = None
    """None when it is about the whole message."""
