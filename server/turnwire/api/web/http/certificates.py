"""TLS with the certificates of `[tls]`, read again when their files change.

The files are looked at before each handshake, which costs the status of at most three files. New files that do not work
are logged once, and the ones before them stay.
"""

import ssl
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import structlog

from turnwire.ports.identity.authenticator import NAME_KINDS, ClientCertificate

log = structlog.get_logger()

_ALPN = ["h2", "http/1.1"]


class WebCertificates:
    """Makes the contexts of TLS. Belongs to the event loop."""

    def __init__(self, cert: Path, key: Path, client_ca: Path | None) -> None:
        """Reads the files.

        Raises:
            OSError: a file cannot be read, or they do not work together (ssl.SSLError).
        """
        self._cert, self._key, self._client_ca = cert, key, client_ca
        self._broken = ""
        self._seen = self._statuses()
        self._current = self._read()

    def context(self) -> ssl.SSLContext:
        """Returns the context to listen with. It takes another one at each handshake, if the files have changed."""
        context = self._read()
        context.sni_callback = self._choose
        return context

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._renewed()

    def _renewed(self) -> ssl.SSLContext:
        try:
            statuses = self._statuses()
            if statuses != self._seen:
                self._seen = statuses
                self._current = self._read()
                self._broken = ""
                log.info("web_certificates_renewed", cert=str(self._cert))
        except (OSError, ValueError) as error:
            if self._broken != str(error):
                log.error("web_certificates_not_renewed", problem=str(error))
            self._broken = str(error)
        return self._current

    def _statuses(self) -> tuple[tuple[int, int, int], ...]:
        files = filter(None, (self._cert, self._key, self._client_ca))
        return tuple(map(_status, files))

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(_ALPN)
        context.load_cert_chain(self._cert, self._key, password=_no_password)
        if self._client_ca is not None:  # as the gRPC listener: with authorities, every client presents a certificate
            context.load_verify_locations(self._client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


def _status(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):  # a pipe would hold the event loop that reads it
        raise OSError(f"{path} is not a regular file")
    return status.st_mtime_ns, status.st_ino, status.st_size


def certificate_of(found: Mapping[str, Any] | None) -> ClientCertificate | None:
    """Returns a verified certificate in the form in which callers are identified; None for none."""
    if not found:
        return None
    subject = [pair for group in found.get("subject", ()) for pair in group]
    common_names = [value for name, value in subject if name == "commonName"]
    return ClientCertificate(
        common_name=common_names[0] if common_names else "",
        alternative_name=_alternative_name(found.get("subjectAltName", ())),
    )


def _alternative_name(names: Sequence[tuple[str, Any]]) -> str:
    """Returns the first alternative name behind its kind; "" if it names nobody."""
    kind, first = next(iter(names), ("", ""))
    if kind not in NAME_KINDS or not first or any(name == first and other != kind for other, name in names):
        return ""
    return f"{kind}:{first}"


def _no_password() -> str:
    raise ValueError("the key is encrypted")
