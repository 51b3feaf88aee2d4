"""The certificates of a gRPC listener, read again when their files change.

gRPC asks before each handshake. That costs the status of at most three files; they are read when a status has changed.
A new pair that does not work is logged once, and the pair before it stays.
"""

import os
import ssl
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

import grpc
import structlog

log = structlog.get_logger()

_Statuses = tuple[tuple[int, int, int], ...]

_CERTIFICATE_MARK = ("certificate", b"-----BEGIN CERTIFICATE-----")
_KEY_MARK = ("private key", b"PRIVATE KEY-----")

T = TypeVar("T")


class Keys(NamedTuple):
    """The keys of the configuration that name the files."""

    cert: str
    key: str
    client_ca: str


TLS_KEYS = Keys("tls.cert", "tls.key", "tls.client_ca")
CLUSTER_KEYS = Keys("cluster.cert", "cluster.key", "cluster.ca")


class UnusableCertificates(OSError):
    """A file of `[tls]` or `[cluster]` cannot be used. The message begins with the key that names it."""

    def __init__(self, key: str, problem: str) -> None:
        """Takes the key, and what is wrong with its file."""
        super().__init__(f"{key}: {problem}")
        self.key = key
        self.problem = problem


class ServerCertificates:
    """Certificate, key and authorities of clients. Any thread may use it."""

    def __init__(self, cert: Path, key: Path, client_ca: Path | None, keys: Keys = TLS_KEYS) -> None:
        """Reads the files. `keys` are those of the configuration, for errors.

        Raises:
            UnusableCertificates: a file cannot be read, or they do not work together.
        """
        self._cert, self._key, self._client_ca, self._keys = cert, key, client_ca, keys
        self._files = {keys.cert: cert, keys.key: key, **({keys.client_ca: client_ca} if client_ca else {})}
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
        # before each handshake; a Path takes twice as long
        found = {name: _from(name, path, os.stat) for name, path in self._files.items()}
        for name, status in found.items():
            if not stat.S_ISREG(status.st_mode):  # a pipe would keep the thread that reads it
                raise UnusableCertificates(name, f"{self._files[name]} is not a regular file")
        return tuple((status.st_mtime_ns, status.st_ino, status.st_size) for status in found.values())

    def _read(self) -> "grpc.ServerCertificateConfiguration":
        contents = self._contents()
        self._check(contents)
        if contents != self._contents():
            raise UnusableCertificates(f"{self._keys.cert}, {self._keys.key}", "the files change while they are read")
        pair = (contents[self._keys.key], contents[self._keys.cert])
        return grpc.ssl_server_certificate_configuration([pair], root_certificates=contents.get(self._keys.client_ca))

    def _contents(self) -> dict[str, bytes]:
        return {name: _from(name, path, Path.read_bytes) for name, path in self._files.items()}

    def _check(self, contents: dict[str, bytes]) -> None:
        """Refuses files that gRPC would take and no client could use. Raises UnusableCertificates."""
        for name, content in contents.items():
            what, mark = _KEY_MARK if name == self._keys.key else _CERTIFICATE_MARK
            if mark not in content:
                raise UnusableCertificates(name, f"{self._files[name]} has no {what} in PEM")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self._cert, self._key, password=_no_password)
        except (ssl.SSLError, ValueError) as error:
            problem = f"{self._key} does not work with the certificate {self._cert}: {_text(error)}"
            raise UnusableCertificates(self._keys.key, problem) from None
        if self._keys.client_ca in contents:
            try:
                context.load_verify_locations(cadata=contents[self._keys.client_ca].decode("ascii"))
            except (ssl.SSLError, ValueError) as error:
                problem = f"{self._client_ca} does not work: {_text(error)}"
                raise UnusableCertificates(self._keys.client_ca, problem) from None


def _from(name: str, path: Path, read: Callable[[Path], T]) -> T:
    try:
        return read(path)
    except OSError as error:
        raise UnusableCertificates(name, f"{path}: {error.strerror}") from None


def _no_password() -> str:
    raise ValueError("the key is encrypted")


def _text(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error)
