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
    retained_events_per_session = 10000   older events are dropped; a watcher that asks for them gets resync

    [defaults]
    model = "offline/echo"            "provider/model" where neither session, agent nor message names one
    fallback_models = []              asked in this order when the chosen model's provider does not answer
    builtin_providers = true          false: only the providers of this file, see below
    host_messages = true              errors, aborts and compactions leave a HOST message in the conversation

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
    max_turn_tokens = 0               prompts and answers of one turn; 0 for no limit, here and below
    max_turn_cost_usd = 0             money for one turn; steps whose price is unknown count nothing
    max_session_tokens = 0            of all turns of a session
    max_session_cost_usd = 0

    [retries]                         of a model call that failed before its first content
    max_retries = 3                   with the same model; 0 for none
    first_delay_seconds = 0.5         doubles from attempt to attempt, less up to a half at random
    longest_delay_seconds = 30.0      a provider that asks for a longer wait counts as gone

    [compaction]                      of older messages, into a summary
    enabled = true                    for sessions that say nothing of their own
    threshold = 0.8                   0.1 to 0.99: share of the context window that a request may fill, with its answer
    keep = 0.3                        0.05 to 0.9, below threshold: share that the newest messages may keep
    model = ""                        "provider/model" that writes summaries; "" is the model of the turn

    [log]
    level = "info"                    debug, info, warning or error
    format = "text"                   text or json (one object a line)

    [providers.NAME]                  see `turnwire.providers.settings.ProviderSettings`
    kind = "openai_chat"              required: openai_chat, openai_responses, anthropic or offline
    name = ""                         to show to people
    base_url = ""                     "" is the vendor's own; without user name or password
    api_key_env = ""                  NAME of the variable that holds the key; never the key
    default_model = ""
    models = []                       models to list; left out, the vendors' own list those that the price list knows
    only_listed_models = false        true refuses all others, but for those of [models]
    price_provider = ""               vendor under which the price list knows the models
    timeout_seconds = 600.0           longest silence
    max_output_tokens = 8192          where the API demands a limit and the caller gave none
    stream_usage = true               false for servers that refuse stream_options
    sends_reasoning = false           true for servers that want reasoning back with tool calls (DeepSeek, Moonshot)
    reasoning_summary = ""            openai_responses: "auto", "concise" or "detailed" asks for readable reasoning

    [models."PROVIDER/MODEL"]         lists the model; what it says wins over the price list
    name = ""                         to show to people
    description = ""
    context_window_tokens = 200000    no default; for offline models 128000
    max_output_tokens = 64000         no default
    input_usd_per_million = "0.25"    prices have no default; a number or a text, at most 12 decimals
    output_usd_per_million = 2        reasoning included
    cache_read_usd_per_million = 0.025
    cache_write_usd_per_million = 0
    capabilities = ["tools"]          of tools, images, documents, reasoning; left out: nothing is said. Images and
                                      documents are sent only to models that can see them, as far as that is said

    [permissions]                     for calls of all tools, the clients' own too; without a match they are allowed
    "PATTERN" = "ask"                 allow, ask or deny; the last pattern that matches counts, so begin with "*"

    [agents.NAME]                     "default" is the agent of sessions that name none
    system = ""                       system prompt
    model = ""                        "provider/model"
    fallback_models = []              instead of those of [defaults]; left out: those
    description = ""
    color = ""                        "#rrggbb"
    tools = ["fs.*"]                  patterns of the server's tools that it may use; left out: all of them
    permissions = {}                  or [agents.NAME.permissions]: as [permissions], and after those

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

Costs: a configured price wins over the price list, which gives the missing ones. Where neither has a price for a bucket
that a call used, the cost is unknown. Tokens read from or written to a cache need a price of their own: repeat the
input's where there is no rebate.

Unknown keys and bad values raise `ConfigError`. Keys of providers are never read here, let alone kept.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from turnwire.config.agents import read_agents, read_permissions
from turnwire.config.document import ConfigError, Document
from turnwire.config.mcp import read_mcp
from turnwire.config.providers import ConfiguredModels, read_models
from turnwire.config.sections import DefaultsSection, LogConfig, ServerConfig, StorageConfig
from turnwire.core.settings import (
    Agent,
    CompactionSettings,
    CoreSettings,
    FileSettings,
    Limits,
    PermissionRule,
    Retries,
)
from turnwire.domain.conversation.messages import ModelRef
from turnwire.providers.settings import ModelSettings, ProviderSettings
from turnwire.tools.settings import McpSettings

__all__ = ["Config", "ConfigError", "LogConfig", "ServerConfig", "StorageConfig", "load_config"]

DEFAULT_FILE = "turnwire.toml"


class Config(Struct, frozen=True, kw_only=True):
    """The whole configuration, checked. Holds no keys, only the names of the variables that hold them."""

    server: ServerConfig = ServerConfig()
    storage: StorageConfig = StorageConfig()
    log: LogConfig = LogConfig()
    default_model: ModelRef
    providers: Mapping[str, ProviderSettings]
    provider_sources: Mapping[str, str]
    """For each provider "builtin", "env" (its usual key variable is set) or "config"."""
    models: Mapping[ModelRef, ModelSettings] = {}
    agents: Mapping[str, Agent] = {}
    permissions: tuple[PermissionRule, ...] = ()
    files: FileSettings = FileSettings()
    """The roots are absolute."""
    limits: Limits = Limits()
    retries: Retries = Retries()
    fallback_models: tuple[ModelRef, ...] = ()
    compaction: CompactionSettings = CompactionSettings()
    host_messages: bool = True
    mcp: Mapping[str, McpSettings] = {}

    def core_settings(self) -> CoreSettings:
        """Returns the part that the core works with."""
        return CoreSettings(
            default_model=self.default_model,
            agents=self.agents,
            files=self.files,
            limits=self.limits,
            retries=self.retries,
            fallback_models=self.fallback_models,
            permissions=self.permissions,
            compaction=self.compaction,
            host_messages=self.host_messages,
        )


def load_config(path: Path | None, environ: Mapping[str, str], options: Mapping[str, str] | None = None) -> Config:
    """Reads the configuration.

    Args:
        path: The file; None takes the one that TURNWIRE_CONFIG names, else `./turnwire.toml`, else none.
        environ: The environment; only the variables of docs/configuration.md are read.
        options: Options of the command line that were given: "--listen", "--db".

    Raises:
        ConfigError: the file is missing or wrong, or a variable or an option is.
    """
    document = Document(_file(path, environ), {**environ, **(options or {})})
    defaults = document.section("defaults", DefaultsSection)
    limits = document.section("limits", Limits)
    models = read_models(document, defaults.builtin_providers)
    return Config(
        server=_server(document, limits.max_message_bytes),
        storage=_storage(document),
        log=document.section("log", LogConfig),
        default_model=models.ref("defaults.model", defaults.model),
        providers=models.providers,
        provider_sources=models.sources,
        models=models.models,
        agents=read_agents(document, models),
        permissions=read_permissions(document, "permissions", document.table("permissions")),
        files=_files(document),
        limits=limits,
        retries=document.section("retries", Retries),
        fallback_models=models.refs("defaults.fallback_models", defaults.fallback_models),
        compaction=_compaction(document, models),
        host_messages=defaults.host_messages,
        mcp=read_mcp(document),
    )


def _file(path: Path | None, environ: Mapping[str, str]) -> Path | None:
    if path is not None:
        return path
    if named := environ.get("TURNWIRE_CONFIG"):
        if not Path(named).is_file():
            raise ConfigError(f"TURNWIRE_CONFIG: there is no file {named}")
        return Path(named)
    return Path(DEFAULT_FILE) if Path(DEFAULT_FILE).is_file() else None


def _server(document: Document, needed_bytes: int) -> ServerConfig:
    server = document.section("server", ServerConfig)
    host_and_port = re.fullmatch(r"(?:[^\s:/\[\]]+|\[[0-9a-fA-F:.]+\]):(\d{1,5})", server.listen)
    is_tcp = host_and_port is not None and int(host_and_port[1]) <= 65_535
    if not is_tcp and not re.fullmatch(r"unix:\S.*", server.listen):
        raise document.error("server.listen", f"{server.listen!r} is neither host:port nor unix:path")
    if server.max_message_bytes < needed_bytes:
        raise document.error("server.max_message_bytes", f"must be at least limits.max_message_bytes, {needed_bytes}")
    return server


def _storage(document: Document) -> StorageConfig:
    storage = document.section("storage", StorageConfig)
    if not storage.path.name:
        raise document.error("storage.path", "names no file")
    if "path" not in document.table("storage"):
        return storage
    return msgspec.structs.replace(storage, path=document.path("storage.path", storage.path))


def _compaction(document: Document, models: ConfiguredModels) -> CompactionSettings:
    table = models.resolved("compaction", document.table("compaction"))
    settings = document.converted("compaction", table, CompactionSettings)
    if settings.keep >= settings.threshold:
        raise document.error("compaction.keep", f"must be less than compaction.threshold, {settings.threshold:g}")
    return settings


def _files(document: Document) -> FileSettings:
    files = document.section("files", FileSettings)
    roots = tuple(_root(document, f"files.roots[{index}]", root) for index, root in enumerate(files.roots))
    return msgspec.structs.replace(files, roots=roots)


def _root(document: Document, key: str, root: Path) -> Path:
    path = document.path(key, root)
    if not path.is_dir():
        raise document.error(key, f"{path} is not a folder")
    return path
