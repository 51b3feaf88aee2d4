"""Settings of `turnwire-adapters serve`: options, then environment variables, then defaults."""

import ipaddress
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from turnwire_adapters.registry import HTTP_ADAPTERS

LISTEN = "127.0.0.1:8090"
TARGET = "127.0.0.1:50051"
LOG_FORMATS = ("text", "json")


class SettingsError(Exception):
    """A setting that cannot be: the message names it."""


@dataclass(frozen=True, slots=True)
class Target:
    """The Turnwire server behind the adapters."""

    address: str = TARGET
    """`HOST:PORT`."""
    tls: bool = False
    """Whether to encrypt with the authorities of the system."""
    ca: Path | None = None
    """Authorities of the server's certificate (PEM). Implies TLS."""
    cert: Path | None = None
    """The adapters' own certificate (PEM), with its `key`. Implies TLS."""
    key: Path | None = None

    @property
    def encrypted(self) -> bool:
        """Whether calls are encrypted."""
        return self.tls or self.ca is not None or self.cert is not None


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """Everything that `serve` needs to know."""

    mounts: Mapping[str, str]
    """Prefixes by the names of adapters; each adapter that is switched on."""
    host: str
    port: int
    """0 lets the system choose one."""
    target: Target
    insecure: bool = False
    """Whether other machines may reach the listener without TLS and authentication, and the server without TLS."""
    tls_cert: Path | None = None
    """The listener's certificate (PEM) with its `tls_key`; None for HTTP without encryption."""
    tls_key: Path | None = None
    allowed_origins: Sequence[str] = ()
    """Web pages that may call: origins such as https://app.example; "*" is all of them."""
    allowed_hosts: Sequence[str] = ()
    """Names of the listener, beside addresses and localhost."""
    max_body_bytes: int = 24 << 20
    """Largest body of a request: the server's largest one, of 16 MiB, with its files in base64."""
    stop_seconds: int = 10
    """Maximum time for requests after a stop has begun; streams end at once and can be resumed."""
    log_format: str = "text"
    """One of LOG_FORMATS."""


_OWN = "TURNWIRE_ADAPTERS_"

_OPTIONS: tuple[tuple[str, str, str, str], ...] = (
    ("--listen", f"{_OWN}LISTEN", LISTEN, "HOST:PORT to listen on; only this machine without authentication"),
    ("--target", "TURNWIRE_TARGET", TARGET, "HOST:PORT of the Turnwire server"),
    ("--ca", "TURNWIRE_CA", "", "file with authorities of the server's certificate (PEM); implies TLS"),
    ("--cert", "TURNWIRE_CERT", "", "file with the certificate to show to the server (PEM), with --key"),
    ("--key", "TURNWIRE_KEY", "", "file with the key of --cert"),
    ("--tls-cert", f"{_OWN}TLS_CERT", "", "file with the certificate of this listener (PEM), with --tls-key"),
    ("--tls-key", f"{_OWN}TLS_KEY", "", "file with the key of --tls-cert"),
    ("--allowed-origins", f"{_OWN}ALLOWED_ORIGINS", "", "web pages that may call, with commas between; * for all"),
    ("--allowed-hosts", f"{_OWN}ALLOWED_HOSTS", "", "names of this listener, with commas between; * for all"),
    ("--max-body-bytes", f"{_OWN}MAX_BODY_BYTES", str(24 << 20), "largest request"),
    ("--stop-seconds", f"{_OWN}STOP_SECONDS", "10", "how long requests may go on after SIGTERM"),
    ("--log-format", f"{_OWN}LOG_FORMAT", "text", "text or json"),
)
"""Option, variable, default and help."""


def add_arguments(parser: ArgumentParser) -> None:
    """Adds the options of `serve`."""
    names = ", ".join(f"{name} ({adapter.summary})" for name, adapter in HTTP_ADAPTERS.items())
    parser.add_argument("names", nargs="+", metavar="NAME", help=f"adapters to switch on: {names}")
    mount = "mounts an adapter elsewhere than at its default prefix; once for each"
    parser.add_argument("--mount", action="append", default=[], metavar="NAME=/PREFIX", help=mount)
    parser.add_argument("--tls", action="store_true", help="encrypt calls to the server (TURNWIRE_TLS=1)")
    insecure = "listen where other machines can reach it without TLS or authentication, as behind a proxy that has both"
    parser.add_argument("--insecure", action="store_true", help=insecure)
    for option, variable, default, text in _OPTIONS:
        shown = f"{variable}; {default}" if default else variable
        parser.add_argument(option, default=None, metavar="VALUE", help=f"{text} ({shown})")


def read(arguments: Namespace, environ: Mapping[str, str]) -> ServeSettings:
    """Returns the settings of parsed options and an environment.

    Raises:
        SettingsError: one of them cannot be.
    """
    given = {
        option: str(_first(getattr(arguments, option[2:].replace("-", "_")), environ.get(variable), default))
        for option, variable, default, _ in _OPTIONS
    }
    host, port = _host_and_port(given["--listen"])
    if given["--log-format"] not in LOG_FORMATS:
        raise SettingsError(f"--log-format: {given['--log-format']!r} is not one of {', '.join(LOG_FORMATS)}")
    settings = ServeSettings(
        mounts=_mounts(arguments.names, arguments.mount),
        host=host,
        port=port,
        target=Target(
            address=given["--target"],
            tls=arguments.tls or environ.get("TURNWIRE_TLS", "") in ("1", "true"),
            ca=_file("--ca", given),
            cert=_file("--cert", given),
            key=_file("--key", given),
        ),
        insecure=arguments.insecure,
        tls_cert=_file("--tls-cert", given),
        tls_key=_file("--tls-key", given),
        allowed_origins=_list(given["--allowed-origins"]),
        allowed_hosts=_list(given["--allowed-hosts"]),
        max_body_bytes=_number("--max-body-bytes", given, least=1),
        stop_seconds=_number("--stop-seconds", given, least=0),
        log_format=given["--log-format"],
    )
    _check(settings)
    return settings


def is_open(host: str) -> bool:
    """Returns whether other machines can connect to a listener on a host. A name counts as open, except localhost."""
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"


def _check(settings: ServeSettings) -> None:
    if (settings.tls_cert is None) != (settings.tls_key is None):
        raise SettingsError("--tls-cert and --tls-key go together")
    if (settings.target.cert is None) != (settings.target.key is None):
        raise SettingsError("--cert and --key go together")
    if is_open(settings.host) and not settings.insecure:
        if settings.target.cert is not None:
            # Every caller would be who the certificate says, so only callers of this machine may come.
            raise SettingsError("--listen: other machines would call with the rights of --cert; listen on 127.0.0.1")
        if settings.tls_cert is None:
            raise SettingsError("--listen: other machines can reach it, so it needs --tls-cert and --tls-key")
    server = settings.target.address
    is_elsewhere = not server.startswith("unix:") and is_open(server.rpartition(":")[0].strip("[]"))
    if is_elsewhere and not settings.target.encrypted and not settings.insecure:
        raise SettingsError(f"--target: tokens would go to {server} unencrypted: add --tls or --ca")
    for origin in settings.allowed_origins:
        if origin != "*" and (urlsplit(origin).scheme not in ("http", "https") or urlsplit(origin).path):
            raise SettingsError(f"--allowed-origins: {origin!r} is no origin such as https://app.example")


def _mounts(names: Sequence[str], moved: Sequence[str]) -> dict[str, str]:
    mounts: dict[str, str] = {}
    for name in names:
        if name not in HTTP_ADAPTERS:
            raise SettingsError(f"{name!r} is no adapter: there are {', '.join(HTTP_ADAPTERS) or 'none'}")
        mounts[name] = HTTP_ADAPTERS[name].prefix
    for mount in moved:
        name, _, prefix = mount.partition("=")
        if name not in mounts or not re.fullmatch(r"(/[A-Za-z0-9._~-]+)*/?", prefix):
            raise SettingsError(f"--mount: {mount!r} is not NAME=/PREFIX of an adapter that is switched on")
        mounts[name] = prefix.removesuffix("/")
    for prefix in mounts.values():
        if len(same := [name for name in mounts if mounts[name] == prefix]) > 1:
            raise SettingsError(f"{' and '.join(same)} have the prefix {prefix or '/'!r}: move one with --mount")
    return mounts


def _host_and_port(listen: str) -> tuple[str, int]:
    found = re.fullmatch(r"(?:([^\s:/\[\]]+)|\[([0-9a-fA-F:.]+)\]):(\d{1,5})", listen)
    if found is None or int(found[3]) > 65_535:
        raise SettingsError(f"--listen: {listen!r} is not HOST:PORT")
    return found[1] or found[2], int(found[3])


def _file(option: str, given: Mapping[str, str]) -> Path | None:
    if not given[option]:
        return None
    if not (file := Path(given[option])).is_file():
        raise SettingsError(f"{option}: there is no file {file}")
    return file


def _number(option: str, given: Mapping[str, str], *, least: int) -> int:
    if not given[option].isdecimal() or (number := int(given[option])) < least:
        raise SettingsError(f"{option}: {given[option]!r} is no whole number from {least}")
    return number


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _first(*values: str | None) -> str | None:
    return next((value for value in values if value), None) or ""
