"""Configuration: `turnwire.toml` and environment variables, read once into one frozen `Config`.

The file is the one given on the command line, else the one that TURNWIRE_CONFIG names, else `./turnwire.toml` when
there is one, else none. Every key may be left out. Relative paths in the file start at the file's folder.

    [server]
    listen = "127.0.0.1:50051"        host:port (port 0: any free one), [ipv6]:port or unix:path
    max_message_bytes = 67108864      largest gRPC message; at least limits.max_message_bytes
    shutdown_grace_seconds = 1.0      how long running requests may go on when the server stops
    heartbeat_seconds = 15.0          silence after which a watcher gets a heartbeat

    [storage]
    path = "turnwire.db"              the SQLite file
    retained_events_per_session = 10000   older events are dropped; a watcher that asks for them is reset

    [defaults]
    model = "offline/echo"            "provider/model" where neither session, agent nor message names one
    fallback_models = []              asked in this order when the chosen model's provider does not answer
    builtin_providers = true          false: only the providers of this file, see below

    [files]
    roots = []                        folders from which messages may name files, besides the session's directory
    max_bytes = 20971520              largest attachment

    [limits]                          see `turnwire.core.settings.Limits`
    max_steps = 50                    model calls of one turn
    max_running_turns = 256           whose model is asked at once, on the server
    max_queued_messages = 100         waiting in one session
    max_watchers = 10000              event streams open at once
    max_message_bytes = 33554432      text, attachments and metadata of one message
    max_answer_bytes = 16777216       text, reasoning and arguments of one answer
    flush_interval_seconds = 0.2      how long streaming text may be unsaved, at most 0.2
    client_tool_timeout_seconds = 600.0   how long a client tool may take
    max_parallel_tool_calls = 8       calls of the server's tools in one turn at once
    max_tool_output_bytes = 262144    output of one call of a server's tool; the rest is cut off
    max_repeated_calls = 3            steps in a row with the same calls and results, which end a turn

    [retries]                         of a model call that failed before its first content
    max_retries = 3                   with the same model; 0 for none
    first_delay_seconds = 0.5         doubles from attempt to attempt, less up to a half at random
    longest_delay_seconds = 30.0      a provider that asks for a longer wait counts as gone

    [log]
    level = "info"                    debug, info, warning or error
    format = "text"                   text or json (one object a line)

    [providers.NAME]                  see `turnwire.providers.settings.ProviderSettings`
    kind = "openai_chat"              required: openai_chat, openai_responses, anthropic or offline
    name = ""                         to show to people
    base_url = ""                     "" is the vendor's own; without user name or password
    api_key_env = ""                  NAME of the variable that holds the key; never the key
    default_model = ""
    models = []                       models to list
    only_listed_models = false        true refuses all others
    price_provider = ""               vendor under which the price list knows the models
    timeout_seconds = 600.0           longest silence
    max_output_tokens = 8192          where the API demands a limit and the caller gave none
    stream_usage = true               false for servers that refuse stream_options
    sends_reasoning = false           true for servers that want reasoning back in a tool loop (DeepSeek, Moonshot)
    reasoning_summary = ""            openai_responses: "auto", "concise" or "detailed" asks for readable reasoning

    [agents.NAME]                     "default" is the agent of sessions that name none
    system = ""                       system prompt
    model = ""                        "provider/model"
    description = ""
    color = ""                        "#rrggbb"
    tools = ["fs.*"]                  patterns of the server's tools that it may use; left out: all of them

    [mcp.NAME]                        an MCP server; its tools are called NAME.TOOL; see `turnwire.tools.settings`
    command = ""                      program to start (standard input and output), or else:
    url = ""                          address of a server that speaks streamable HTTP
    args = []
    env = []                          NAMES of the variables that the program gets besides HOME, PATH and the like
    cwd = ""                          folder that the program starts in
    headers_env = {}                  header = NAME of the variable that holds its value
    timeout_seconds = 60.0            longest time of one call
    start_timeout_seconds = 30.0      longest time until its tools are listed; it is tried again and again

Providers that need no file: `offline` always; `openai` and `anthropic` as soon as OPENAI_API_KEY or ANTHROPIC_API_KEY
is set. A table of the same name in the file replaces them.

Environment variables win over the file, an empty one counts as unset: TURNWIRE_LISTEN (server.listen),
TURNWIRE_STORAGE_PATH (storage.path), TURNWIRE_DEFAULT_MODEL (defaults.model), TURNWIRE_LOG_LEVEL (log.level),
TURNWIRE_LOG_FORMAT (log.format). Options of the command line win over both: --listen, --db (storage.path).

Unknown keys and bad values raise `ConfigError`. Keys of providers are never read here, let alone kept.
"""

import importlib.util
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from turnwire.config_sections import (
    AgentSection,
    DefaultsSection,
    FilesSection,
    LimitsSection,
    LogConfig,
    RetriesSection,
    ServerConfig,
    StorageConfig,
    explained,
    path_of,
)
from turnwire.core.settings import Agent, CoreSettings, Limits, Retries
from turnwire.domain.messages import ModelRef
from turnwire.providers.settings import ProviderSettings
from turnwire.tools.settings import McpSettings

DEFAULT_FILE = "turnwire.toml"

_KEY_OF_OVERRIDE = {
    "TURNWIRE_LISTEN": ("server", "listen"),
    "TURNWIRE_STORAGE_PATH": ("storage", "path"),
    "TURNWIRE_DEFAULT_MODEL": ("defaults", "model"),
    "TURNWIRE_LOG_LEVEL": ("log", "level"),
    "TURNWIRE_LOG_FORMAT": ("log", "format"),
    "--listen": ("server", "listen"),
    "--db": ("storage", "path"),
}
"""Later ones win. Other TURNWIRE_ variables are left alone: Kubernetes sets TURNWIRE_PORT and the like by itself for a
service of that name."""

_PROVIDERS_BY_KEY_VARIABLE = {
    "openai": ProviderSettings(
        kind="openai_responses", name="OpenAI", api_key_env="OPENAI_API_KEY", default_model="gpt-5-mini"
    ),
    "anthropic": ProviderSettings(
        kind="anthropic", name="Anthropic", api_key_env="ANTHROPIC_API_KEY", default_model="claude-sonnet-4-5"
    ),
}


_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]{0,99}"


class ConfigError(Exception):
    """The configuration is wrong. The message names the file or variable and the key."""


class Config(Struct, frozen=True, kw_only=True):
    """The whole configuration, checked. Holds no keys, only the names of the variables that hold them."""

    server: ServerConfig = ServerConfig()
    storage: StorageConfig = StorageConfig()
    log: LogConfig = LogConfig()
    default_model: ModelRef
    providers: Mapping[str, ProviderSettings]
    provider_sources: Mapping[str, str]
    """For each provider "builtin", "env" (its usual key variable is set) or "config"."""
    agents: Mapping[str, Agent] = {}
    file_roots: tuple[Path, ...] = ()
    """Absolute."""
    limits: Limits = Limits()
    retries: Retries = Retries()
    fallback_models: tuple[ModelRef, ...] = ()
    mcp: Mapping[str, McpSettings] = {}

    def core_settings(self) -> CoreSettings:
        """Returns the part that the core works with."""
        return CoreSettings(
            default_model=self.default_model,
            agents=self.agents,
            file_roots=self.file_roots,
            limits=self.limits,
            retries=self.retries,
            fallback_models=self.fallback_models,
        )


def load_config(path: Path | None, environ: Mapping[str, str], options: Mapping[str, str] | None = None) -> Config:
    """Reads the configuration.

    Args:
        path: The file; None looks for one as this module's docstring says.
        environ: The environment; only the variables named in the module's docstring are read.
        options: Options of the command line that were given: "--listen", "--db".

    Raises:
        ConfigError: the file is missing or wrong, or a variable or an option is.
    """
    file = _file(path, environ)
    return _Reader(file, _document(file), {**environ, **(options or {})}).config()


def _file(path: Path | None, environ: Mapping[str, str]) -> Path | None:
    if path is not None:
        return path
    if named := environ.get("TURNWIRE_CONFIG"):
        if not Path(named).is_file():
            raise ConfigError(f"TURNWIRE_CONFIG: there is no file {named}")
        return Path(named)
    return Path(DEFAULT_FILE) if Path(DEFAULT_FILE).is_file() else None


def _document(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{file}: is not valid TOML: {error}") from error


Section = TypeVar("Section")


class _Reader:
    """Turns the file's tables and the overrides into a `Config`, and remembers where each value came from."""

    def __init__(self, file: Path | None, document: dict[str, Any], overrides: Mapping[str, str]) -> None:
        self._file = file
        self._document = document
        self._overridden_by: dict[str, str] = {}
        """Key path -> variable or option."""
        known = {"server", "storage", "defaults", "files", "limits", "retries", "log", "providers", "agents", "mcp"}
        for name, table in document.items():
            if name not in known:
                raise self._error(name, "is not a known section")
            if not isinstance(table, dict):
                raise self._error(name, "must be a table")
        for override, (section, key) in _KEY_OF_OVERRIDE.items():
            if value := overrides.get(override):
                document.setdefault(section, {})[key] = value
                self._overridden_by[f"{section}.{key}"] = override
        self._environ = overrides

    def config(self) -> Config:
        """Reads and checks everything.

        Raises:
            ConfigError: something is wrong.
        """
        defaults = self._section("defaults", DefaultsSection)
        files = self._section("files", FilesSection)
        limits = self._section("limits", LimitsSection)
        retries = self._section("retries", RetriesSection)
        providers, sources = self._providers(defaults)
        return Config(
            server=self._server(limits.max_message_bytes),
            storage=self._storage(),
            log=self._section("log", LogConfig),
            default_model=self._model("defaults.model", defaults.model, providers),
            providers=providers,
            provider_sources=sources,
            agents=self._agents(providers),
            file_roots=tuple(self._root(i, root) for i, root in enumerate(files.roots)),
            limits=limits.limits(files.max_bytes),
            retries=retries.retries(),
            fallback_models=tuple(
                self._model(f"defaults.fallback_models[{index}]", model, providers)
                for index, model in enumerate(defaults.fallback_models)
            ),
            mcp=self._mcp(),
        )

    def _server(self, needed_bytes: int) -> ServerConfig:
        server = self._section("server", ServerConfig)
        host_and_port = re.fullmatch(r"(?:[^\s:/\[\]]+|\[[0-9a-fA-F:.]+\]):(\d{1,5})", server.listen)
        is_tcp = host_and_port is not None and int(host_and_port[1]) <= 65_535
        if not is_tcp and not re.fullmatch(r"unix:\S.*", server.listen):
            raise self._error("server.listen", f"{server.listen!r} is neither host:port nor unix:path")
        if server.max_message_bytes < needed_bytes:
            raise self._error("server.max_message_bytes", f"must be at least limits.max_message_bytes, {needed_bytes}")
        return server

    def _storage(self) -> StorageConfig:
        storage = self._section("storage", StorageConfig)
        if not storage.path.name:
            raise self._error("storage.path", "names no file")
        if "path" not in self._document.get("storage", {}):
            return storage
        return msgspec.structs.replace(storage, path=self._path("storage.path", storage.path))

    def _providers(self, defaults: DefaultsSection) -> tuple[dict[str, ProviderSettings], dict[str, str]]:
        providers: dict[str, ProviderSettings] = {}
        sources: dict[str, str] = {}
        if defaults.builtin_providers:
            providers["offline"] = ProviderSettings(kind="offline", name="Offline")
            sources["offline"] = "builtin"
            for name, settings in _PROVIDERS_BY_KEY_VARIABLE.items():
                if self._environ.get(settings.api_key_env):
                    providers[name] = settings
                    sources[name] = "env"
        for name, table in self._document.get("providers", {}).items():
            providers[name] = self._provider(f"providers.{name}", table)
            sources[name] = "config"
        return providers, sources

    def _provider(self, key: str, table: object) -> ProviderSettings:
        if not re.fullmatch(r"providers\.[\w.-]+", key):
            raise self._error(key, "is not a name of letters, digits, '_', '-' and '.'")
        settings = self._converted(key, table, ProviderSettings)
        # The name of a variable is asked for and people paste the key: never repeat the value.
        if not re.fullmatch(rf"({_VARIABLE})?", settings.api_key_env):
            raise self._error(f"{key}.api_key_env", "is not the name of an environment variable")
        # Clients are told the address, so it must not carry a password.
        if settings.base_url and not re.fullmatch(r"https?://[^/@\s]+(/[^@\s]*)?", settings.base_url):
            raise self._error(
                f"{key}.base_url", "must be http:// or https:// and a host, without user name or password"
            )
        if not 0 < settings.timeout_seconds <= 86_400:
            raise self._error(f"{key}.timeout_seconds", "must be more than 0 and at most a day")
        if settings.max_output_tokens < 1:
            raise self._error(f"{key}.max_output_tokens", "must be at least 1")
        if settings.only_listed_models and not settings.models:
            raise self._error(f"{key}.models", "is empty, but only_listed_models is set")
        return settings

    def _agents(self, providers: Mapping[str, ProviderSettings]) -> dict[str, Agent]:
        agents: dict[str, Agent] = {}
        for name, table in self._document.get("agents", {}).items():
            agent = self._converted(f"agents.{name}", table, AgentSection)
            agents[name] = Agent(
                system=agent.system,
                model=self._model(f"agents.{name}.model", agent.model, providers) if agent.model else None,
                description=agent.description,
                color=agent.color,
                tools=agent.tools,
            )
        return agents

    def _mcp(self) -> dict[str, McpSettings]:
        tables = self._document.get("mcp", {})
        if tables and importlib.util.find_spec("mcp") is None:
            raise self._error("mcp", "needs a package that is not installed: pip install 'turnwire[mcp]'")
        return {name: self._mcp_server(f"mcp.{name}", table) for name, table in tables.items()}

    def _mcp_server(self, key: str, table: object) -> McpSettings:
        if not re.fullmatch(r"mcp\.[A-Za-z0-9_-]{1,32}", key):
            raise self._error(key, "is not a name of at most 32 letters, digits, '_' and '-'")
        settings = self._converted(key, table, McpSettings)
        if bool(settings.command) == bool(settings.url):
            raise self._error(key, "needs either command or url")
        # Never repeat these values: people paste keys.
        for name in (*settings.env, *settings.headers_env.values()):
            if not re.fullmatch(_VARIABLE, name):
                raise self._error(key, "env and headers_env take names of environment variables")
        if settings.url and not re.fullmatch(r"https?://[^/@\s]+(/[^@\s]*)?", settings.url):
            raise self._error(f"{key}.url", "must be http:// or https:// and a host, without user name or password")
        for field in ("timeout_seconds", "start_timeout_seconds"):
            if not 0 < getattr(settings, field) <= 86_400:
                raise self._error(f"{key}.{field}", "must be more than 0 and at most a day")
        if settings.cwd is None:
            return settings
        return msgspec.structs.replace(settings, cwd=self._path(f"{key}.cwd", settings.cwd))

    def _model(self, key: str, text: str, providers: Mapping[str, ProviderSettings]) -> ModelRef:
        provider_id, _, model_id = text.partition("/")
        if not provider_id or not model_id:
            raise self._error(key, f"{text!r} is not of the form provider/model")
        settings = providers.get(provider_id)
        if settings is None:
            raise self._error(key, f"{text!r} names no configured provider; there are: {', '.join(sorted(providers))}")
        if settings.only_listed_models and model_id not in settings.models:
            raise self._error(key, f"{text!r} is not among providers.{provider_id}.models")
        return ModelRef(provider_id, model_id)

    def _root(self, index: int, root: Path) -> Path:
        key = f"files.roots[{index}]"
        path = self._path(key, root)
        if not path.is_dir():
            raise self._error(key, f"{path} is not a folder")
        return path

    def _path(self, key: str, path: Path) -> Path:
        """Returns the path seen from the working directory; a relative one of the file starts at the file's folder."""
        path = path.expanduser()
        from_file = self._file is not None and key not in self._overridden_by
        return (self._file.parent / path if from_file and self._file else path).absolute()

    def _section(self, name: str, kind: type[Section]) -> Section:
        return self._converted(name, self._document.get(name, {}), kind)

    def _converted(self, key: str, table: object, kind: type[Section]) -> Section:
        try:
            return msgspec.convert(table, kind, dec_hook=path_of)
        except msgspec.ValidationError as error:
            raise self._error(*explained(key, error, kind)) from None

    def _error(self, key: str, problem: str) -> ConfigError:
        """Returns the error with the place that the value of the key came from."""
        place = self._overridden_by.get(key) or f"{self._file or 'default configuration'}: {key}"
        return ConfigError(f"{place}: {problem}")
