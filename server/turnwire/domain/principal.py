"""Principals: the callers for whom use cases act."""

import re
from enum import StrEnum

from msgspec import Struct

TENANT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Pattern of tenant names from any source; has to match the complete name. Case-sensitive."""

TENANT_NAME_FORM = "a name of at most 64 letters, digits, '.', '_' and '-' that starts with a letter or digit"
"""`TENANT_NAME` in words, for people."""

MAX_SUBJECT_CHARACTERS = 200
"""Maximum length of the name of a caller within its tenant."""


def is_subject(text: str) -> bool:
    """Returns whether a text can be the subject of a caller who is identified: short, and fit for a log line."""
    return 0 < len(text) <= MAX_SUBJECT_CHARACTERS and text.isprintable()


class Role(StrEnum):
    """The rights of a caller. Each role includes the rights of the roles before it."""

    ANONYMOUS = ""
    """May call only methods that are open to all: a caller without credentials."""
    READER = "reader"
    """Reads and watches."""
    WRITER = "writer"
    """Also sends, answers and changes."""
    ADMIN = "admin"
    """Also operates the server, and acts for every tenant."""

    def includes(self, other: "Role") -> bool:
        """Returns whether this role has all rights of the other one."""
        return _RANKS[self] >= _RANKS[other]


_RANKS = {role: rank for rank, role in enumerate(Role)}


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

ANONYMOUS = Principal(tenant="", subject="", role=Role.ANONYMOUS)
"""A caller without credentials where callers are identified. Reaches no use case that reads or changes data."""
