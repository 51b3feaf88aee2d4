"""Holders of client certificates."""

import pytest

from turnwire.domain.errors import Unauthenticated
from turnwire.domain.principal import Principal, Role
from turnwire.identity.certificates import Certificates
from turnwire.identity.settings import CertificateHolder, MtlsSettings
from turnwire.ports.identity.authenticator import ClientCertificate

CI = ClientCertificate("ci", "DNS:ci.example")
HOLDERS = {"ci": CertificateHolder(tenant="acme", role="writer")}


def test_a_holder_has_its_row() -> None:
    """The common name names it."""
    settings = MtlsSettings(holders=HOLDERS, default_tenant="rest", default_role="reader")
    assert Certificates(settings).principal(CI) == Principal(tenant="acme", subject="ci", role=Role.WRITER)


def test_the_first_alternative_name_can_name_it() -> None:
    """Then the common name means nothing; a subject without a row gets the defaults."""
    settings = MtlsSettings(
        subject="first_alternative_name", holders=HOLDERS, default_tenant="rest", default_role="reader"
    )
    assert Certificates(settings).principal(CI) == Principal(tenant="rest", subject="DNS:ci.example", role=Role.READER)


@pytest.mark.parametrize(
    "certificate", [ClientCertificate("other", ""), ClientCertificate("", "DNS:ci"), ClientCertificate("c\ni", "")]
)
@pytest.mark.parametrize("defaults", [{}, {"default_tenant": "rest"}, {"default_role": "reader"}])
def test_an_unknown_subject_is_refused(certificate: ClientCertificate, defaults: dict[str, str]) -> None:
    """Unless the configuration has both defaults."""
    with pytest.raises(Unauthenticated):
        Certificates(MtlsSettings(holders=HOLDERS, **defaults)).principal(certificate)  # type: ignore[arg-type]
