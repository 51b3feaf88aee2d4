"""Who may make a call: identifies the caller, applies its role, and lets admins act for another tenant."""

import time
from collections.abc import Callable

import structlog
from msgspec.structs import replace

from turnwire.api import audit
from turnwire.domain.errors import InvalidRequest, PermissionDenied, Unauthenticated
from turnwire.domain.principal import ANONYMOUS, TENANT_NAME, Principal, Role
from turnwire.ports.identity import Authenticator, Caller

LINES_A_SECOND = 10
"""Lines about refused callers: enough to see who it is, too few to fill a disk."""

log = structlog.get_logger()


class Admission:
    """Turns callers into principals with the right to make a call. Keeps no state of a call."""

    def __init__(self, authenticator: Authenticator) -> None:
        """Takes what identifies callers."""
        self._authenticator = authenticator
        self.refusals = RefusalLog()

    async def admit(self, method: str, least_role: Role, caller: Caller) -> Principal:
        """Returns the principal for whom a call acts. Safe to cancel.

        Raises:
            Unauthenticated: the credentials are missing or not valid.
            TooManySignIns: too many credentials are being checked.
            PermissionDenied: the role does not suffice, or the caller may not act for the tenant that it names.
            InvalidRequest: an admin names something that is no name of a tenant.
        """
        principal = self._authenticator.recall(caller)
        if principal is None:
            principal = await self._authenticator.verify(caller)
        if not principal.role.includes(least_role):
            if principal is ANONYMOUS:
                raise Unauthenticated("no credentials", missing=True)
            raise _denied(f"this call needs the role {least_role}", principal, least_role)
        tenant = caller.tenant
        if tenant is None or tenant == principal.tenant or principal is ANONYMOUS:
            return principal
        if principal.role is not Role.ADMIN:
            raise _denied("only an admin may act for another tenant", principal, Role.ADMIN)
        if not TENANT_NAME.fullmatch(tenant):
            raise InvalidRequest.of("turnwire-tenant", "is no name of a tenant")
        audit.record_other_tenant(principal, tenant, method)
        return replace(principal, tenant=tenant)

    def check_still_valid(self, caller: Caller) -> None:
        """Ends a stream whose credentials have expired or were revoked since it was admitted.

        Raises:
            Unauthenticated: they are no longer valid.
        """
        self._authenticator.recall(caller)


def _denied(text: str, principal: Principal, required: Role) -> PermissionDenied:
    return PermissionDenied(
        f"{text}, and the caller is a {principal.role}", {"role": principal.role, "requiredRole": required}
    )


class RefusalLog:
    """Logs callers that are refused before their call begins, at most a few lines in each second."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Takes the clock, in seconds."""
        self._clock = clock
        self._second = 0
        self._lines = 0
        self._unlogged = 0

    def note(self, method: str, code: str, cause: str, address: str) -> None:
        """Writes a line, or counts the refusal for a later line. `cause` never has any part of a credential."""
        second = int(self._clock())
        if second != self._second:
            self._second, self._lines = second, 0
        if self._lines >= LINES_A_SECOND:
            self._unlogged += 1
            return
        self._lines += 1
        unlogged, self._unlogged = self._unlogged, 0
        log.warning(
            "caller_refused", method=method, code=code, cause=cause, address=address, refused_since_last_line=unlogged
        )
