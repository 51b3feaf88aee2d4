"""Who acts: the caller for whom a use case is carried out."""

from enum import StrEnum

from msgspec import Struct


class Role(StrEnum):
    """What a caller may do; each role may do what the one before it may."""

    READER = "reader"
    """Reads and watches."""
    WRITER = "writer"
    """Also sends, answers and changes."""
    ADMIN = "admin"
    """Also operates the server."""


class Principal(Struct, frozen=True, kw_only=True):
    """A caller, as the listener knows it. Equal values are the same caller."""

    tenant: str
    """Whose data it is; tenants never see anything of each other."""
    subject: str
    """Who it is within the tenant; "" for a caller that nobody identified."""
    role: Role


BUILT_IN = Principal(tenant="default", subject="", role=Role.ADMIN)
"""Every caller of a server that does not identify its callers. What was stored before there were principals is its."""
