"""Rights to make a call, and the tenant that it is for."""

import pytest
from structlog.testing import capture_logs

from tests.support.fakes.identity import FakeCaller, KnownCallers
from turnwire.api.gate import Access
from turnwire.domain.errors import InvalidRequest
from turnwire.domain.principal import Principal, Role

WRITER = Principal(tenant="acme", subject="eve", role=Role.WRITER)
ADMIN = Principal(tenant="acme", subject="ada", role=Role.ADMIN)


def admission() -> Access:
    """Knows a writer and an admin of one tenant."""
    return Access(KnownCallers({"Bearer eve": WRITER, "Bearer ada": ADMIN}))


async def test_an_admin_acts_for_another_tenant() -> None:
    """It stays itself, and the audit log has a line."""
    with capture_logs() as lines:
        admitted = await admission().admit("S.One", Role.READER, FakeCaller("Bearer ada", tenant="other"))
    assert admitted == Principal(tenant="other", subject="ada", role=Role.ADMIN)
    assert [(line["event"], line["action"], line["tenant"], line["for_tenant"]) for line in lines] == [
        ("audit", "acted_for_tenant", "acme", "other")
    ]


@pytest.mark.parametrize("tenant", ["", "-x", "a b", "a/b", "ü", "a\n", "x" * 65])
async def test_a_tenant_has_a_name(tenant: str) -> None:
    """An admin that names something else gets an error about the metadata."""
    with pytest.raises(InvalidRequest) as wrong:
        await admission().admit("S.One", Role.READER, FakeCaller("Bearer ada", tenant=tenant))
    assert wrong.value.violations[0].field == "turnwire-tenant"
