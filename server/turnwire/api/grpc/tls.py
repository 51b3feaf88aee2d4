"""The certificates of the gRPC listener, read again when their files change.

gRPC asks before each handshake. That costs the status of at most three files; they are read when a status has changed.
A new pair that does not work is logged once, and the pair before it stays.
"""

import os
import ssl
import threading
from pathlib import Path

import grpc
import structlog

log = structlog.get_logger()

_Statuses = tuple[tuple[int, int, int], ...]


class ServerCertificates:
    """Certificate, key and authorities of clients. Any thread may use it."""

    def __init__(self, cert: Path, key: Path, client_ca: Path | None) -> None:
        """Reads the files.

        Raises:
            OSError: a file cannot be read, or they do not work together.
        """
        self._cert, self._key, self._client_ca = cert, key, client_ca
        self._lock = threading.Lock()
        """Protects `_seen` and `_broken`: gRPC's threads ask at the same time."""
        self._broken = ""
        """Why the files of the last look do not work; "" when they do."""
        self._seen = self._statuses()
        self._first = self._read()

    def credentials(self) -> grpc.ServerCredentials:
        """Returns credentials that follow the files. With authorities, every client must present a certificate.

        gRPC for Python can require a certificate or never ask for one, but not make it optional.
        """
        return grpc.dynamic_ssl_server_credentials(
            self._first,
            self.renewed,  # type: ignore[arg-type] # None keeps what is there, which the stubs do not know
            require_client_authentication=self._client_ca is not None,
        )

    def renewed(self) -> "grpc.ServerCertificateConfiguration | None":
        """Returns the certificates if they have changed since the last call and work; else None. Never raises."""
        with self._lock:
            try:
                statuses = self._statuses()
                if statuses == self._seen:
                    return None
                self._seen = statuses
                renewed = self._read()
            except OSError as error:
                if self._broken != str(error):
                    log.error("certificates_not_renewed", problem=str(error))
                self._broken = str(error)
                return None
            self._broken = ""
            log.info("certificates_renewed", cert=str(self._cert))
            return renewed

    def _statuses(self) -> _Statuses:
        paths = (self._cert, self._key, *([self._client_ca] if self._client_ca else ()))
        found = [os.stat(path) for path in paths]  # noqa: PTH116 - before each handshake; a Path takes twice as long
        return tuple((status.st_mtime_ns, status.st_ino, status.st_size) for status in found)

    def _read(self) -> "grpc.ServerCertificateConfiguration":
        cert, key = self._cert.read_bytes(), self._key.read_bytes()
        client_ca = self._client_ca.read_bytes() if self._client_ca else None
        self._check(client_ca)
        if (cert, key) != (self._cert.read_bytes(), self._key.read_bytes()):
            raise OSError("tls.cert, tls.key: the files change while they are read")
        return grpc.ssl_server_certificate_configuration([(key, cert)], root_certificates=client_ca)

    def _check(self, client_ca: bytes | None) -> None:
        """Refuses files that gRPC would take and no client could use. Raises OSError."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self._cert, self._key, password=_no_password)
        except (ssl.SSLError, ValueError) as error:
            raise OSError(f"tls.cert and tls.key, {self._cert} and {self._key}, do not work: {_text(error)}") from None
        if client_ca is not None:
            try:
                context.load_verify_locations(cadata=client_ca.decode("ascii"))
            except (ssl.SSLError, ValueError) as error:
                raise OSError(f"tls.client_ca, {self._client_ca}, does not work: {_text(error)}") from None


def _no_password() -> str:
    raise ValueError("the key is encrypted")


def _text(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error)
