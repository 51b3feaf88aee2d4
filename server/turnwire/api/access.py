"""Access control: identifies the caller, applies its role, and lets admins act for another tenant."""

import contextlib

from msgspec.structs import replace

from turnwire.api import audit
from turnwire.domain.errors import InvalidRequest, PermissionDenied, TooManySignIns, Unauthenticated
from turnwire.domain.principal import ANONYMOUS, TENANT_NAME, Principal, Role
from turnwire.ports.identity.authenticator import Authenticator, Caller


class Access:
    """Turns callers into principals with the right to make a call. Keeps no state of a call."""

    def __init__(self, authenticator: Authenticator) -> None:
        """Takes what identifies callers."""
        self._authenticator = authenticator

    async def admit(self, method: str, least_role: Role, caller: Caller) -> Principal:
        """Returns the principal for whom a call acts. Safe to cancel.

        Raises:
            Unauthenticated: the credentials are missing or not valid.
            TooManySignIns: too many credentials are being checked.
            PermissionDenied: the role does not suffice, or the caller may not act for the tenant that it names.
            InvalidRequest: an admin names something that is not the name of a tenant.
        """
        principal = self._authenticator.recall(caller)
        if principal is None:
            principal = await self._authenticator.verify(caller)
        if not principal.role.includes(least_role):
            if principal is ANONYMOUS:
                raise Unauthenticated("no credentials", missing=True)
            raise PermissionDenied.of(f"this call needs the role {least_role}", principal.role, least_role)
        tenant = caller.tenant
        if tenant is None or tenant == principal.tenant or principal is ANONYMOUS:
            return principal
        if principal.role is not Role.ADMIN:
            raise PermissionDenied.of("only an admin may act for another tenant", principal.role, Role.ADMIN)
        if not TENANT_NAME.fullmatch(tenant):
            raise InvalidRequest.of("turnwire-tenant", "is not the name of a tenant")
        audit.record_other_tenant(principal, tenant, method)
        return replace(principal, tenant=tenant)

    async def check_still_valid(self, caller: Caller) -> None:
        """Ends a stream whose credentials have expired or were revoked since it was admitted. Safe to cancel.

        Credentials that are no longer remembered, as after a key was withdrawn, are checked again. When there is no
        budget for that, the next answer of the stream decides: wrong tokens of others do not end it.

        Raises:
            Unauthenticated: they are no longer valid.
        """
        if self._authenticator.recall(caller) is None:
            with contextlib.suppress(TooManySignIns):
                await self._authenticator.verify(caller)
