"""TLS with the certificate of `[tls]`, read again when its files change.

The files are looked at before each handshake, which costs the status of two files. New files that do not work are
logged once, and the ones before them stay. Clients present no certificates here.
"""

import ssl
import stat
from pathlib import Path

import structlog

log = structlog.get_logger()

_ALPN = ["http/1.1"]


class WebCertificates:
    """Makes the contexts of TLS. Used on the event loop only."""

    def __init__(self, cert: Path, key: Path) -> None:
        """Reads the files.

        Raises:
            OSError: a file cannot be read, or they do not work together (ssl.SSLError).
        """
        self._cert, self._key = cert, key
        self._broken = ""
        self._seen = self._statuses()
        self._current = self._read()

    def context(self) -> ssl.SSLContext:
        """Returns the context to listen with. It takes another one at each handshake, if the files have changed."""
        self._current.sni_callback = self._choose
        return self._current

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
        return _status(self._cert), _status(self._key)

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(_ALPN)
        context.load_cert_chain(self._cert, self._key, password=_no_password)
        return context


def _status(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):  # a pipe would hold the event loop that reads it
        raise OSError(f"{path} is not a regular file")
    return status.st_mtime_ns, status.st_ino, status.st_size


def _no_password() -> str:
    raise ValueError("the key is encrypted")
