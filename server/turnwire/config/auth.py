"""Reads TLS and authentication from a configuration, and rejects addresses that would be open to other machines."""

import re
from pathlib import Path

from msgspec.structs import replace

from turnwire.config.addresses import has_host, is_open
from turnwire.config.document import Document
from turnwire.config.sections import AuthConfig, ServerConfig, TlsConfig, WebConfig
from turnwire.ports.identity.authenticator import NAME_KINDS

_LOOPBACK_URL = r"http://(127\.0\.0\.1|localhost|\[::1\])(:\d+)?(/[^@\s]*)?"
_HTTPS_URL = r"https://[^/@\s]+(/[^@\s]*)?"


def read_tls(document: Document) -> TlsConfig:
    """Returns the section with absolute paths. Raises ConfigError."""
    tls = document.section("tls", TlsConfig)
    files = {name: getattr(tls, name) for name in TlsConfig.__struct_fields__}
    for name in ("cert", "key"):
        if files[name] is None and any(files.values()):
            raise document.error(f"tls.{name}", "is required, because another key of [tls] is set")
    return replace(tls, **{name: document.path(f"tls.{name}", path) for name, path in files.items() if path})


def read_auth(document: Document) -> AuthConfig:
    """Returns the section with absolute paths. Raises ConfigError."""
    auth = document.section("auth", AuthConfig)
    for method, key, value in (
        ("token", "tokens", auth.tokens),
        ("jwt", "jwt", auth.jwt),
        ("mtls", "mtls", auth.mtls),
    ):
        if value is not None and method not in auth.methods:
            raise document.error(f"auth.{key}", f'has no effect: add "{method}" to auth.methods')
    for method in ("jwt", "mtls"):
        if method in auth.methods and getattr(auth, method) is None:
            raise document.error(f"auth.{method}", f'is required, because auth.methods has "{method}"')
    if auth.mtls is not None and "client_ca" not in document.table("tls"):
        raise document.error("auth.mtls", "needs tls.client_ca, whose certificates it accepts")
    if auth.mtls is not None and auth.mtls.subject == "first_alternative_name":
        for holder in auth.mtls.holders:
            if holder.partition(":")[0] not in NAME_KINDS:
                kinds = ", ".join(f'"{kind}:{holder}"' for kind in NAME_KINDS)
                problem = f"a first alternative name has its kind: one of {kinds}"
                raise document.error(f'auth.mtls.holders."{holder}"', problem)
    if auth.jwt is not None:
        auth = replace(auth, jwt=replace(auth.jwt, keys=_keys(document, auth.jwt.keys)))
    return auth if auth.tokens is None else replace(auth, tokens=document.path("auth.tokens", auth.tokens))


def _keys(document: Document, keys: str) -> str:
    document.require_extra("auth.jwt", "jwt", "jwt", "cryptography")
    if not re.match(r"[a-z]+://", keys):
        return str(document.path("auth.jwt.keys", Path(keys)))
    if not re.fullmatch(f"{_HTTPS_URL}|{_LOOPBACK_URL}", keys) or not has_host(keys):
        raise document.error(
            "auth.jwt.keys", "must be a file, or https:// and a host without user name or password; http:// on loopback"
        )
    return keys


def check_open_addresses(
    document: Document, server: ServerConfig, web: WebConfig, tls: TlsConfig, auth: AuthConfig
) -> None:
    """Rejects an address at which other machines can connect without both TLS and authentication.

    Raises:
        ConfigError: names the keys to set.
    """
    if web.listen and tls.client_ca is not None and not {"token", "jwt"} & set(auth.methods):
        raise document.error(
            "web.listen",
            "clients of the web listener present no certificates, so tls.client_ca does not protect it: add "
            '"token" or "jwt" to auth.methods, or leave web.listen out',
        )
    for section, listener, instead in (("server", server, "127.0.0.1 or a Unix socket"), ("web", web, "127.0.0.1")):
        missing = missing_protection(listener.listen, tls, auth)
        if missing and not listener.insecure:
            raise document.error(
                f"{section}.listen",
                f"other machines can reach {listener.listen}, so it needs {' and '.join(missing)}; otherwise listen on "
                f"{instead}, or set {section}.insecure = true",
            )


def missing_protection(listen: str, tls: TlsConfig, auth: AuthConfig) -> tuple[str, ...]:
    """Returns the keys that an address within reach of other machines lacks; empty for other addresses, and for ""."""
    if not listen or not is_open(listen):
        return ()
    return (*(("tls.cert", "tls.key") if tls.cert is None else ()), *(() if auth.methods else ("auth.methods",)))
