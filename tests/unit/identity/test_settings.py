"""Settings of web tokens and certificates take what the rest of the server takes."""

import msgspec
import pytest

from turnwire.identity.settings import CertificateHolder


@pytest.mark.parametrize("tenant", ["", "acme\n", "-acme", "a b", "a" * 65])
def test_a_name_that_no_tenant_has_is_refused(tenant: str) -> None:
    """As a whole: a line feed at the end is a part of it."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"tenant": tenant, "role": "writer"}, CertificateHolder)
