"""Who may make a call, and for which tenant."""

import pytest
from structlog.testing import capture_logs

from tests.support.fakes.identity import FakeCaller, KnownCallers
from turnwire.api.access import Access
from turnwire.api.wire.status import status_of
from turnwire.domain.errors import InvalidRequest, PermissionDenied, Unauthenticated
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


@pytest.mark.parametrize("caller", ["eve", "ada"])
async def test_everybody_may_name_the_own_tenant(caller: str) -> None:
    """That changes nothing, and is not worth a line."""
    with capture_logs() as lines:
        admitted = await admission().admit("S.One", Role.READER, FakeCaller(f"Bearer {caller}", tenant="acme"))
    assert (admitted, lines) == ({"eve": WRITER, "ada": ADMIN}[caller], [])


@pytest.mark.parametrize("tenant", ["other", "ACME", "", "no name"])
async def test_others_act_for_their_own_tenant_only(tenant: str) -> None:
    """Whether the other tenant exists or could exist makes no difference."""
    with pytest.raises(PermissionDenied) as denied:
        await admission().admit("S.One", Role.READER, FakeCaller("Bearer eve", tenant=tenant))
    assert denied.value.metadata == {"role": "writer", "requiredRole": "admin"}


@pytest.mark.parametrize("tenant", ["", "-x", "a b", "a/b", "ü", "a\n", "x" * 65])
async def test_a_tenant_has_a_name(tenant: str) -> None:
    """An admin that names something else gets an error about the metadata."""
    with pytest.raises(InvalidRequest) as wrong:
        await admission().admit("S.One", Role.READER, FakeCaller("Bearer ada", tenant=tenant))
    assert wrong.value.violations[0].field == "turnwire-tenant"


async def test_missing_and_wrong_credentials_have_the_same_status_but_for_the_text() -> None:
    """Wrong ones all have one text: nothing shows which check failed."""
    for caller, text in ((FakeCaller(), "needs credentials"), (FakeCaller("Bearer x"), "are not valid")):
        with pytest.raises(Unauthenticated, match=text):
            await admission().admit("S.One", Role.READER, caller)
    expired, forged = (status_of(Unauthenticated(cause)) for cause in ("expired", "forged"))
    assert expired.SerializeToString(deterministic=True) == forged.SerializeToString(deterministic=True)
