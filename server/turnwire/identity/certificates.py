"""Client certificates: returns the holder. The TLS handshake has checked that the certificate is valid."""

from turnwire.domain.errors import Unauthenticated
from turnwire.domain.principal import Principal, Role
from turnwire.identity.settings import MtlsSettings
from turnwire.ports.identity.authenticator import NAME_KINDS, ClientCertificate


class Certificates:
    """The holders of client certificates. Keeps no state."""

    def __init__(self, settings: MtlsSettings) -> None:
        """Takes the settings."""
        self._by_common_name = settings.subject == "common_name"
        kinds = ", ".join(NAME_KINDS)
        self._needed = "a common name" if self._by_common_name else f"a first alternative name of {kinds}"
        self._holders = {
            subject: Principal(tenant=holder.tenant, subject=subject, role=Role(holder.role))
            for subject, holder in settings.holders.items()
        }
        self._default_tenant = settings.default_tenant
        self._default_role = settings.default_role

    def principal(self, certificate: ClientCertificate) -> Principal:
        """Returns the holder.

        Raises:
            Unauthenticated: the certificate names no subject, or the configuration does not know it.
        """
        subject = certificate.common_name if self._by_common_name else certificate.alternative_name
        if not subject or not subject.isprintable():
            raise Unauthenticated(f"a client certificate without {self._needed}")
        if (holder := self._holders.get(subject)) is not None:
            return holder
        if self._default_tenant is None or self._default_role is None:
            raise Unauthenticated("a client certificate of an unknown subject")
        return Principal(tenant=self._default_tenant, subject=subject, role=Role(self._default_role))
