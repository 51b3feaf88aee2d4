"""Principals: the callers for whom use cases act."""

from enum import StrEnum

from msgspec import Struct

TENANT_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""Pattern that the whole name of a tenant matches."""


class Role(StrEnum):
    """What a caller may do. Each role includes the rights of the roles before it."""

    READER = "reader"
    """Reads and watches."""
    WRITER = "writer"
    """Also sends, answers and changes."""
    ADMIN = "admin"
    """Also operates the server."""


class Principal(Struct, frozen=True, kw_only=True):
    """A caller as identified by the listener. Equal values are the same caller."""

    tenant: str
    """The owner of the data. Tenants never see data of other tenants."""
    subject: str
    """The caller within the tenant; "" for an unidentified caller."""
    role: Role


DEFAULT_TENANT = "default"
"""The tenant of data that was stored before tenants existed, and of every caller of a server without authentication."""

BUILT_IN = Principal(tenant=DEFAULT_TENANT, subject="", role=Role.ADMIN)
"""Every caller of a server that does not identify callers."""
