"""Configuration: `turnwire.toml`, environment variables and options, read once into one frozen `Config`.

docs/reference/configuration.md describes every key and variable; `make generate` writes it from the types of the
sections (`turnwire.config.sections`). Unknown keys and invalid values raise `ConfigError`, which names the key and its
source. The API keys of providers are never read here.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import msgspec
from msgspec import Struct

from turnwire.config.addresses import has_host, host_and_port, is_http_address, is_open
from turnwire.config.agents import read_agents, read_permissions
from turnwire.config.auth import check_open_addresses, read_auth, read_tls
from turnwire.config.cluster import read_cluster
from turnwire.config.document import ConfigError, Document
from turnwire.config.mcp import read_mcp
from turnwire.config.providers import ConfiguredModels, read_models
from turnwire.config.sections import (
    AuthConfig,
    ClusterConfig,
    DefaultsSection,
    LogConfig,
    MetricsConfig,
    ServerConfig,
    StorageConfig,
    TlsConfig,
    TracingConfig,
    WebConfig,
)
from turnwire.config.tenants import default_roots, read_roots, read_tenants, written_roots
from turnwire.core.settings import (
    Agent,
    CompactionSettings,
    CoreSettings,
    FileSettings,
    PermissionRule,
    QuotaLimits,
    Retries,
    TenantSettings,
    TitleSettings,
)
from turnwire.domain.conversation.messages import ModelRef
from turnwire.domain.limits import Limits
from turnwire.providers.settings import ModelSettings, ProviderSettings
from turnwire.tools.settings import McpSettings

__all__ = ["Config", "ConfigError", "LogConfig", "ServerConfig", "StorageConfig", "TracingConfig", "load_config"]

DEFAULT_FILE = "turnwire.toml"

SHOWN_SECTIONS = ("server", "web", "storage", "limits", "files")
"""Sections whose limits every caller may know. Quotas have a method of their own."""

_SECRETS = {"password", "sslpassword", "oauth_client_secret"}
"""Parameters of libpq that it shows to nobody; a line of the log has the address."""


class Config(Struct, frozen=True, kw_only=True):
    """The complete, checked configuration. Has the names of the variables with API keys, never the keys."""

    server: ServerConfig = ServerConfig()
    web: WebConfig = WebConfig()
    tls: TlsConfig = TlsConfig()
    auth: AuthConfig = AuthConfig()
    storage: StorageConfig = StorageConfig()
    cluster: ClusterConfig = ClusterConfig()
    log: LogConfig = LogConfig()
    metrics: MetricsConfig = MetricsConfig()
    tracing: TracingConfig = TracingConfig()
    default_model: ModelRef
    providers: Mapping[str, ProviderSettings]
    provider_sources: Mapping[str, str]
    """Maps each provider to "builtin", "env" (its usual key variable is set) or "config"."""
    models: Mapping[ModelRef, ModelSettings] = {}
    agents: Mapping[str, Agent] = {}
    permissions: tuple[PermissionRule, ...] = ()
    files: FileSettings = FileSettings()
    """Its `roots` are absolute, with links resolved."""
    tenants: Mapping[str, TenantSettings] = {}
    default_roots: tuple[Path, ...] = ()
    """Replaces `files.roots` when these are empty."""
    written_roots: Mapping[Path, Path] = {}
    """Maps the roots whose paths contain links from the path as written to the path with links resolved."""
    quotas: QuotaLimits = QuotaLimits()
    limits: Limits = Limits()
    retries: Retries = Retries()
    fallback_models: tuple[ModelRef, ...] = ()
    compaction: CompactionSettings = CompactionSettings()
    titles: TitleSettings = TitleSettings()
    host_messages: bool = True
    mcp: Mapping[str, McpSettings] = {}

    def token_file(self) -> Path:
        """Returns the SQLite file of the tokens; see `token_place`."""
        return self.auth.tokens or self.storage.path.with_name(f"{self.storage.path.stem}-tokens.db")

    def token_place(self) -> str:
        """Returns where the tokens are: the address of the PostgreSQL database, or the path of their file."""
        if self.storage.url and self.auth.tokens is None:
            return self.storage.url
        return str(self.token_file().absolute())

    def private_files(self) -> tuple[Path, ...]:
        """Returns the files with secrets of the server, except its database. They need not exist."""
        tokens = self.token_file()
        beside = (tokens.with_name(tokens.name + suffix) for suffix in ("", "-journal", "-wal", "-shm"))
        return (*beside, *(key for key in (self.tls.key, self.cluster.key) if key))

    def shown_limits(self) -> Mapping[str, int]:
        """Returns the limits that callers may want to know; see `shown_limits`."""
        return shown_limits({section: getattr(self, section) for section in SHOWN_SECTIONS})

    def core_settings(self) -> CoreSettings:
        """Returns the settings that the core uses."""
        return CoreSettings(
            default_model=self.default_model,
            agents=self.agents,
            files=self.files,
            tenants=self.tenants,
            default_roots=self.default_roots,
            written_roots=self.written_roots,
            private_files=self.private_files(),
            spool_folder=self.storage.path.resolve().parent,
            quotas=self.quotas,
            limits=self.limits,
            retries=self.retries,
            fallback_models=self.fallback_models,
            permissions=self.permissions,
            compaction=self.compaction,
            titles=self.titles,
            host_messages=self.host_messages,
            max_list_bytes=self.server.max_list_bytes,
        )


def shown_limits(sections: Mapping[str, Struct]) -> Mapping[str, int]:
    """Returns the counts, sizes and times of sections by their keys in the file, such as "limits.max_steps".

    A time that is not a whole number of seconds is given in milliseconds, under a key that ends so. Money is left out.
    """
    shown = {}
    for section, settings in sections.items():
        for field in msgspec.structs.fields(settings):
            key, value = f"{section}.{field.encode_name}", getattr(settings, field.name)
            if type(value) is int:  # money has a type of its own, and true is not a number
                shown[key] = value
            elif isinstance(value, float) and value.is_integer():
                shown[key] = int(value)
            elif isinstance(value, float):
                shown[key.removesuffix("_seconds") + "_milliseconds"] = round(value * 1000)
    return shown


def load_config(path: Path | None, environ: Mapping[str, str], options: Mapping[str, str] | None = None) -> Config:
    """Reads the configuration.

    Args:
        path: The file; None uses the file that TURNWIRE_CONFIG names, else `./turnwire.toml` if it exists.
        environ: The environment; only the variables in docs/reference/configuration.md are read.
        options: The given command line options: "--listen", "--db", "--web".

    Raises:
        ConfigError: the file is missing, or the file, a variable or an option is invalid.
    """
    return read_config(open_document(path, environ, options))


def open_document(path: Path | None, environ: Mapping[str, str], options: Mapping[str, str] | None = None) -> Document:
    """Returns the document that `load_config` reads. Raises ConfigError when the file is missing or not TOML."""
    return Document(_file(path, environ), {**environ, **(options or {})})


def read_config(document: Document) -> Config:
    """Returns the configuration of a document. Raises ConfigError for the first problem."""
    document.check_sections()
    defaults = document.section("defaults", DefaultsSection)
    limits = document.section("limits", Limits)
    quotas = document.section("quotas", QuotaLimits)
    models = read_models(document, defaults.builtin_providers)
    server, tls, auth = _server(document), read_tls(document), read_auth(document)
    web = _web(document)
    check_open_addresses(document, server, web, tls, auth)
    storage = _storage(document)
    config = Config(
        server=server,
        web=web,
        tls=tls,
        auth=auth,
        storage=storage,
        cluster=read_cluster(document, storage),
        log=document.section("log", LogConfig),
        metrics=_metrics(document),
        tracing=_tracing(document),
        default_model=models.ref("defaults.model", defaults.model),
        providers=models.providers,
        provider_sources=models.sources,
        models=models.models,
        agents=read_agents(document, models),
        permissions=read_permissions(document, "permissions", document.table("permissions")),
        files=_files(document),
        tenants=read_tenants(document, quotas),
        default_roots=default_roots(server.listen, web.listen, identifies_callers=bool(auth.methods)),
        written_roots=written_roots(document),
        quotas=quotas,
        limits=limits,
        retries=document.section("retries", Retries),
        fallback_models=models.refs("defaults.fallback_models", defaults.fallback_models),
        compaction=_compaction(document, models),
        titles=document.convert("titles", models.resolve("titles", document.table("titles")), TitleSettings),
        host_messages=defaults.host_messages,
        mcp=read_mcp(document),
    )
    if config.token_file().absolute() == storage.path.absolute():
        raise document.error("auth.tokens", "is the database: a restored backup would bring revoked tokens back")
    return config


def _file(path: Path | None, environ: Mapping[str, str]) -> Path | None:
    if path is not None:
        return path
    if named := environ.get("TURNWIRE_CONFIG"):
        try:
            is_file = Path(named).is_file()
        except OSError as error:
            raise ConfigError(f"TURNWIRE_CONFIG: {named} cannot be read: {error.strerror}") from None
        if not is_file:
            raise ConfigError(f"TURNWIRE_CONFIG: the file {named} does not exist")
        return Path(named)
    return Path(DEFAULT_FILE) if Path(DEFAULT_FILE).is_file() else None


def _server(document: Document) -> ServerConfig:
    server = document.section("server", ServerConfig)
    if not server.listen.startswith("unix:"):
        try:
            host_and_port(server.listen)
        except ValueError:
            raise document.error("server.listen", f"{server.listen!r} is neither host:port nor unix:path") from None
    elif not re.fullmatch(r"unix:\S.*", server.listen):
        raise document.error("server.listen", f"{server.listen!r} is neither host:port nor unix:path")
    try:
        server.socket_group_id()
    except KeyError:
        raise document.error("server.socket_group", f"this machine has no group {server.socket_group!r}") from None
    return server


def _web(document: Document) -> WebConfig:
    web = document.section("web", WebConfig)
    if web.listen:
        try:
            host_and_port(web.listen)
        except ValueError:
            raise document.error("web.listen", f"{web.listen!r} is not host:port") from None
    for index, origin in enumerate(web.allowed_origins):
        if origin != "*" and not (re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/@?#\s*]+", origin) and has_host(origin)):
            problem = f'{origin!r} is not an origin, such as https://app.example without a path, and not "*"'
            raise document.error(f"web.allowed_origins[{index}]", problem)
    for index, host in enumerate(web.allowed_hosts):
        if not re.fullmatch(r"\*|[A-Za-z0-9_.-]+", host):
            problem = f'{host!r} is not a name, such as turnwire.example without a port, and not "*"'
            raise document.error(f"web.allowed_hosts[{index}]", problem)
    return web


def _metrics(document: Document) -> MetricsConfig:
    metrics = document.section("metrics", MetricsConfig)
    if not metrics.listen:
        return metrics
    try:
        host_and_port(metrics.listen)
    except ValueError:
        raise document.error("metrics.listen", f"{metrics.listen!r} is not host:port") from None
    if not metrics.insecure and is_open(metrics.listen):
        problem = f"other machines can reach {metrics.listen}, and metrics have no authentication"
        raise document.error("metrics.listen", f"{problem}: use 127.0.0.1, or set metrics.insecure = true")
    return metrics


def _storage(document: Document) -> StorageConfig:
    storage = document.section("storage", StorageConfig)
    if not storage.path.name:
        raise document.error("storage.path", "does not name a file")
    if storage.url:
        _check_url(document, storage.url)
    if "path" not in document.table("storage"):
        return storage
    return msgspec.structs.replace(storage, path=document.path("storage.path", storage.path))


def _check_url(document: Document, url: str) -> None:
    try:
        parts = urlsplit(url)
        has_secret = bool(parts.password) or not _SECRETS.isdisjoint(parse_qs(parts.query))
    except ValueError as error:
        raise document.error("storage.url", "is not an address") from error
    if parts.scheme not in ("postgresql", "postgres"):
        raise document.error("storage.url", "is not a PostgreSQL address: it must begin with postgresql://")
    if has_secret:
        problem = "has a password: set PGPASSWORD, or name a file with PGPASSFILE or PGSERVICEFILE"
        raise document.error("storage.url", problem)
    document.require_extra("storage.url", "postgres", "psycopg")


def _tracing(document: Document) -> TracingConfig:
    tracing = document.section("tracing", TracingConfig)
    if tracing.endpoint and not is_http_address(tracing.endpoint):
        raise document.error(
            "tracing.endpoint", "must be http:// or https:// and a host, without user name or password"
        )
    if tracing.enabled:
        document.require_extra("tracing", "otel", "opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
    return tracing


def _compaction(document: Document, models: ConfiguredModels) -> CompactionSettings:
    table = models.resolve("compaction", document.table("compaction"))
    settings = document.convert("compaction", table, CompactionSettings)
    if settings.keep >= settings.threshold:
        raise document.error("compaction.keep", f"must be less than compaction.threshold, {settings.threshold:g}")
    return settings


def _files(document: Document) -> FileSettings:
    files = document.section("files", FileSettings)
    return msgspec.structs.replace(files, roots=read_roots(document, "files.roots", files.roots))
