"""The sections of `turnwire.toml` as types. Sections that the server uses as written are read as its own settings."""

import grp
import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct

from turnwire.core.settings import (
    Agent,
    CompactionSettings,
    FileSettings,
    QuotaLimits,
    Retries,
    TenantSettings,
    TitleSettings,
)
from turnwire.domain.bounds import Count, Seconds, Share
from turnwire.domain.limits import Limits
from turnwire.domain.money import MAX_USD, PICO_USD, PicoUsd
from turnwire.identity.settings import JwtSettings, MtlsSettings
from turnwire.providers.settings import ModelFacts, ModelSettings, ProviderSettings
from turnwire.providers.token_prices import TokenPrices
from turnwire.tools.settings import McpSettings

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]


class ServerConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The address that the server listens on, and its connections."""

    listen: str = "127.0.0.1:50051"
    """Address: `host:port` (port 0: a free one), `[ipv6]:port` or `unix:path`."""
    socket_mode: Annotated[str, Meta(pattern="^0?[0-7]{3}$")] = "0600"
    """Mode of a Unix socket in octal digits; who may write can connect."""
    socket_group: str = ""
    """Group of the socket, by name or number. Empty: the system's choice."""
    max_message_bytes: Count = 16 * 2**20
    """Largest request (else RESOURCE_EXHAUSTED without a reason)."""
    max_connections: Count = 10_000
    """gRPC connections; further ones are closed."""
    max_list_bytes: Count = 4095 * 2**10
    """Largest answer of [`GetMessages` and `ListSessions` without `page_size`](contract.md#lists)."""
    shutdown_grace_seconds: Annotated[float, Meta(ge=0, le=3600)] = 1.0
    """Time for running requests when the server stops."""
    heartbeat_seconds: Seconds = 15.0
    """Silence after which a watcher gets a heartbeat."""
    insecure: bool = False
    """True allows an address that other machines reach without TLS and authentication."""

    def socket_group_id(self) -> int | None:
        """Returns the number of the socket's group; None for the system's choice.

        Raises:
            KeyError: this machine has no group of that name.
        """
        if not self.socket_group:
            return None
        return int(self.socket_group) if self.socket_group.isdecimal() else grp.getgrnam(self.socket_group).gr_gid


class WebConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The web listener: Connect, gRPC-Web and JSON over HTTP, and the console. It also uses `[tls]` and `[auth]`."""

    listen: str = ""
    """Address, as `server.listen`, no Unix socket; "" serves no HTTP."""
    allowed_origins: tuple[str, ...] = ()
    """Origins of further [pages that may call](../operate/web.md#which-pages-may-call), such as `https://app.example`;
    `"*"`: all."""
    allowed_hosts: tuple[str, ...] = ()
    """Further names by which a listener without TLS may be called, without a port; `"*"`: all, and then any page whose
    name resolves to this machine may call."""
    max_connections: Count = 10_000
    """Connections, with TLS from the end of the handshake; further ones are closed. At most half of the files that the
    process may open."""
    insecure: bool = False
    """As `server.insecure`."""


class TlsConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Encryption of all connections, switched on by `cert` and `key`. The files are read again when they change."""

    cert: Path | None = None
    """The server's certificate, then those of authorities below the root (PEM)."""
    key: Path | None = None
    """The certificate's private key, not encrypted (PEM)."""
    client_ca: Path | None = None
    """Authorities of client certificates (PEM), which every gRPC client must then present."""


class AuthConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Identification of callers. Without methods, every caller is an admin of the tenant `default`."""

    methods: tuple[Literal["token", "jwt", "mtls"], ...] = ()
    """Ways to sign in: tokens of `turnwire token`, JSON web tokens (`[auth.jwt]`), client certificates
    (`[auth.mtls]`)."""
    tokens: Path | None = None
    """SQLite file of the tokens. Default: `turnwire-tokens.db` next to `turnwire.db`, or the database of
    `storage.url`."""
    jwt: JwtSettings | None = None
    """JSON web tokens."""
    mtls: MtlsSettings | None = None
    """Client certificates."""


class StorageConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where conversations are stored."""

    path: Path = Path("turnwire.db")
    """The SQLite file; with `url`, its folder has requests too large for memory."""
    url: str = ""
    """[PostgreSQL](../internals/storage.md#postgresql) in place of the file: `postgresql://USER@HOST/DATABASE`. Needs
    the extra `postgres`."""
    retained_events_per_session: Count = 10_000
    """Newest events that a session keeps."""
    retained_events_days: Count = 30
    """Days until events of ended turns are dropped."""


class LogConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The log on standard error."""

    level: LogLevel = "info"
    """The lowest level that is written."""
    format: LogFormat = "text"
    """`text` for people, or `json` for one JSON object per line."""
    stuck_loop_seconds: Annotated[float, Meta(ge=0, le=60)] = 0.1
    """Blocking of the event loop that is logged; 0: never."""


class MetricsConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The address at which Prometheus reads [metrics](../operate/observe.md#metrics), without authentication."""

    listen: str = ""
    """Address: `host:port` or `[ipv6]:port`; "" serves none."""
    insecure: bool = False
    """True allows an address that other machines can reach."""
    by_tenant: bool = False
    """True adds the tenant as a label to turns, tokens and cost."""


class TracingConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[Traces](../operate/observe.md#traces), sent to a collector as OTLP over HTTP. Needs the extra `otel`.

    A key with its default uses the OpenTelemetry variable that is named with it.
    """

    enabled: bool = False
    """Whether traces are recorded and sent."""
    endpoint: str = ""
    """Address of the collector with its path, such as `http://127.0.0.1:4318/v1/traces`; else
    `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, `OTEL_EXPORTER_OTLP_ENDPOINT`, or port 4318 of this machine."""
    service_name: str = ""
    """Name of this server; else `OTEL_SERVICE_NAME` or `turnwire`."""
    sample_ratio: Share = 1.0
    """Share of traces beginning here that are recorded; with 1.0 `OTEL_TRACES_SAMPLER` decides."""
    content: bool = False
    """Whether prompts, answers, arguments and results are part of the traces."""


class DefaultsSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings for sessions, messages and agents that do not set them."""

    model: str = "offline/echo"
    """`PROVIDER/MODEL` that answers where neither message, session nor agent names a model."""
    fallback_models: tuple[str, ...] = ()
    """Models to try in this order when the chosen one's provider does not answer."""
    builtin_providers: bool = True
    """False disables providers that are not in the file."""
    host_messages: bool = True
    """Whether errors, aborts and compactions leave a HOST message in the conversation."""


class ModelSection(ModelFacts, frozen=True, kw_only=True):
    """Facts about a model that override the price list. The table also lists the model."""

    input_usd_per_million: PicoUsd | None = None
    """Prompt tokens, neither read from nor written to a cache."""
    output_usd_per_million: PicoUsd | None = None
    """Generated tokens, reasoning included."""
    cache_read_usd_per_million: PicoUsd | None = None
    """Prompt tokens read from a cache; without a discount, repeat the input price."""
    cache_write_usd_per_million: PicoUsd | None = None
    """Prompt tokens written to a cache; without a surcharge, repeat the input price."""

    def settings(self) -> ModelSettings:
        """Returns the model with its prices."""
        description = {field: getattr(self, field) for field in ModelFacts.__struct_fields__}
        prices = TokenPrices(
            input=self.input_usd_per_million,
            output=self.output_usd_per_million,
            cache_read=self.cache_read_usd_per_million,
            cache_write=self.cache_write_usd_per_million,
        )
        return ModelSettings(**description, prices=prices)


class ClusterConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """This server as one of [several nodes](../operate/cluster.md) on one PostgreSQL (`storage.url`)."""

    listen: str = ""
    """Address for the other nodes, as `server.listen`; "" for a single server. Other machines need `cert`, `key` and
    `ca`."""
    advertise: str = ""
    """Address for the other nodes, if it is not `listen`."""
    cert: Path | None = None
    """This node's certificate (PEM)."""
    key: Path | None = None
    """The certificate's private key, not encrypted (PEM)."""
    ca: Path | None = None
    """Authority of the nodes' certificates, and of no others (PEM)."""


SECTIONS: Mapping[str, type[Struct]] = {
    "server": ServerConfig,
    "web": WebConfig,
    "tls": TlsConfig,
    "auth": AuthConfig,
    "storage": StorageConfig,
    "cluster": ClusterConfig,
    "defaults": DefaultsSection,
    "files": FileSettings,
    "limits": Limits,
    "quotas": QuotaLimits,
    "retries": Retries,
    "compaction": CompactionSettings,
    "titles": TitleSettings,
    "log": LogConfig,
    "metrics": MetricsConfig,
    "tracing": TracingConfig,
}
"""The sections that occur once, by name."""

TABLES: Mapping[str, type[Struct]] = {
    "providers": ProviderSettings,
    "models": ModelSection,
    "agents": Agent,
    "mcp": McpSettings,
    "tenants": TenantSettings,
}
"""The sections with one table per entry: maps the name of the section to the type of such a table."""


def custom_value(kind: type, value: object) -> Path | PicoUsd:
    """Reads paths and money for msgspec. Raises ValueError."""
    if kind is PicoUsd:
        return _pico_usd(value)
    if kind is not Path or not isinstance(value, str):
        raise ValueError("Expected a path")
    return Path(value)


def _pico_usd(value: object) -> PicoUsd:
    if isinstance(value, bool) or not isinstance(value, (str, int, Decimal)):
        raise ValueError('Expected USD as a number or a text such as "0.075"')
    try:
        usd = Decimal(value)
    except InvalidOperation:
        raise ValueError('Expected USD as a number or a text such as "0.075"') from None
    if not usd.is_finite() or not 0 <= usd <= MAX_USD:
        raise ValueError(f"Expected from 0 to {MAX_USD} USD")
    pico = Fraction(usd) * PICO_USD
    if pico.denominator != 1:
        raise ValueError("Expected at most 12 decimals")
    return PicoUsd(pico.numerator)


_WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "decimal": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}


def describe_error(key: str, error: msgspec.ValidationError, kind: type) -> tuple[str, str]:
    """Returns the full key path and the problem from msgspec's message."""
    problem, _, inner = str(error).partition(" - at `$")
    path = key + inner.rstrip("`")
    if unknown := re.search(r"unknown field `(.*)`", problem):
        return f"{path}.{unknown[1]}", "is not a known key"
    if missing := re.search(r"missing required field `(.*)`", problem):
        return f"{path}.{missing[1]}", "is required"
    problem = re.sub(r"`([a-z |]+)`", lambda found: _in_words(found[1]), problem)
    if choices := _choices(_hint(kind, inner.strip(".`"))):
        known = ", ".join(choice or '""' for choice in choices)
        if wrong := re.fullmatch(r"Invalid enum value (.*)", problem, re.DOTALL):
            return path, f"{wrong[1]} is not one of {known}"
        problem += f"; one of {known}"
    return path, problem[:1].lower() + problem[1:]


def _in_words(types: str) -> str:
    """Returns msgspec's names of types in the words of the configuration reference; "null" is left out."""
    return " or ".join(_WORDS.get(name, name) for name in types.split(" | ") if name != "null")


def _hint(kind: object, path: str) -> object:
    """Returns the type at a path of keys below a type, through lists and tables of tables; None if it is unknown."""
    for name in filter(None, re.sub(r"\[[^]]*\]", "", path).split(".")):
        struct = _struct(kind)
        kind = get_type_hints(struct).get(name) if struct else None
    return kind


def _struct(hint: object) -> type[Struct] | None:
    """Returns the section that a type is, or contains."""
    if isinstance(hint, type) and issubclass(hint, Struct):
        return hint
    return next(filter(None, map(_struct, get_args(hint))), None)


def _choices(hint: object) -> tuple[str, ...]:
    """Returns the texts that a type allows, also inside lists and optional types; empty when it allows any text."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    return next(filter(None, map(_choices, get_args(hint))), ())
