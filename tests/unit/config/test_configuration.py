"""The configuration: defaults, precedence, and errors that name the place."""

import importlib.util
import re
import tomllib
from pathlib import Path

import msgspec
import pytest

from turnwire.config.configuration import Config, ConfigError, LogConfig, ServerConfig, StorageConfig, load_config
from turnwire.config.sections import SECTIONS
from turnwire.core.settings import Agent, CompactionSettings, CoreSettings, FileSettings, Limits, PermissionRule
from turnwire.domain.conversation.messages import ModelRef
from turnwire.domain.conversation.permissions import PermissionAction
from turnwire.domain.conversation.sessions import Budget
from turnwire.providers.settings import ModelSettings, ProviderSettings
from turnwire.providers.token_prices import TokenPrices
from turnwire.tools.settings import McpSettings

EXAMPLE = Path(__file__).parents[3] / "examples" / "turnwire.toml"
OFFLINE = ProviderSettings(kind="offline", name="Offline")


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test finds a turnwire.toml that it did not write."""
    monkeypatch.chdir(tmp_path)


def load(text: str, environ: dict[str, str] | None = None, options: dict[str, str] | None = None) -> Config:
    """Reads a file with this text."""
    Path("test.toml").write_text(text)
    return load_config(Path("test.toml"), environ or {}, options)


def test_without_any_file_the_offline_provider_answers() -> None:
    """The defaults need neither file nor key."""
    assert load_config(None, {}) == Config(
        server=ServerConfig(listen="127.0.0.1:50051"),
        storage=StorageConfig(path=Path("turnwire.db")),
        log=LogConfig(level="info", format="text"),
        default_model=ModelRef("offline", "echo"),
        providers={"offline": OFFLINE},
        provider_sources={"offline": "builtin"},
        limits=Limits(),
    )


@pytest.mark.parametrize("name", SECTIONS)
def test_the_example_has_every_key(name: str) -> None:
    """Each section of which there is one is whole, in the order of the reference."""
    assert list(tomllib.loads(EXAMPLE.read_text())[name]) == list(SECTIONS[name].__struct_encode_fields__)


def test_the_example_shows_the_defaults() -> None:
    """Down to the first table that is an example, leaving a key out changes nothing."""
    example = load(EXAMPLE.read_text().partition("\n# The providers ")[0])
    assert example.storage.path == Path.cwd() / StorageConfig().path  # of a file, so it starts at the file's folder
    storage = msgspec.structs.replace(example.storage, path=StorageConfig().path)
    assert msgspec.structs.replace(example, storage=storage) == load_config(None, {})


def test_the_example_is_right_where_it_is_a_comment() -> None:
    """Keys and tables that are commented out exist."""
    text = re.sub(r"^# (?=\[|\w+ = )", "", EXAMPLE.read_text(), flags=re.MULTILINE)
    config = load(text)
    assert config.mcp == {
        "fs": McpSettings(command="npx", args=("-y", "@modelcontextprotocol/server-filesystem", ".")),
    }
    assert config.providers["local"].api_key_env == "LOCAL_KEY"
    assert config.models[ModelRef("local", "qwen3")].prices.cache_read == 10**11


def test_the_example_file_loads() -> None:
    """The sample in examples/ stays valid; what it shows beyond the defaults is read."""
    config = load_config(EXAMPLE, {})
    assert config.storage.path == EXAMPLE.parent / "turnwire.db"
    assert config.provider_sources == {"offline": "builtin", "local": "config"}
    assert config.agents["review"].model == ModelRef("local", "qwen3")
    assert config.agents["review"].fallback_models == (ModelRef("offline", "echo"),)
    assert config.models[ModelRef("local", "qwen3")].context_window_tokens == 32768
    assert config.permissions == (
        PermissionRule("*", PermissionAction.ASK),
        PermissionRule("fs.read_*", PermissionAction.ALLOW),
        PermissionRule("fs.list_*", PermissionAction.ALLOW),
    )


def test_usual_key_variables_bring_their_providers() -> None:
    """Only the variable's name is kept, never the key."""
    config = load_config(None, {"OPENAI_API_KEY": "sk-secret", "ANTHROPIC_API_KEY": ""})
    assert config.provider_sources == {"offline": "builtin", "openai": "env"}
    assert config.providers["openai"].kind == "openai_responses"
    assert "sk-secret" not in repr(config)


def test_a_table_replaces_a_provider_of_the_same_name() -> None:
    """The file wins over what the environment brings."""
    config = load('[providers.openai]\nkind = "openai_chat"\n', {"OPENAI_API_KEY": "x"})
    assert config.provider_sources["openai"] == "config"
    assert config.providers["openai"] == ProviderSettings(kind="openai_chat")


def test_builtin_providers_can_be_left_out() -> None:
    """Then nothing but the file's tables is there."""
    text = '[defaults]\nbuiltin_providers = false\nmodel = "a/b"\n[providers.a]\nkind = "anthropic"\n'
    assert set(load(text, {"OPENAI_API_KEY": "x"}).providers) == {"a"}


def test_core_settings_hold_what_the_core_needs(tmp_path: Path) -> None:
    """Roots become absolute paths, models references."""
    (tmp_path / "shared").mkdir()
    config = load(
        """
        [defaults]
        model = "router/vendor/model"
        host_messages = false
        [files]
        roots = ["shared"]
        max_bytes = 5
        [limits]
        max_steps = 3
        flush_interval_seconds = 0.1
        client_tool_timeout_seconds = 5
        [providers.router]
        kind = "openai_chat"
        [agents.poet]
        system = "Rhyme."
        model = "offline/lorem"
        color = "#00ff00"
        [compaction]
        enabled = false
        threshold = 0.5
        keep = 0.05
        model = "offline/echo"
        """
    )
    assert config.core_settings() == CoreSettings(
        default_model=ModelRef("router", "vendor/model"),
        agents={"poet": Agent(system="Rhyme.", model=ModelRef("offline", "lorem"), color="#00ff00")},
        files=FileSettings(roots=(tmp_path / "shared",), max_bytes=5),
        limits=Limits(max_steps=3, flush_interval_seconds=0.1, client_tool_timeout_seconds=5.0),
        compaction=CompactionSettings(enabled=False, threshold=0.5, keep=0.05, model=ModelRef("offline", "echo")),
        host_messages=False,
    )


def test_permissions_keep_the_order_of_the_file() -> None:
    """The last match counts, so the order says what holds."""
    config = load("""
        [permissions]
        "z*" = "deny"
        "a.*" = "ask"
        plain = "allow"
        [agents.careful.permissions]
        "*" = "ask"
        "fs.read" = "allow"
        [agents.brief]
        permissions = { "*" = "deny" }
    """)
    allow, ask, deny = PermissionAction.ALLOW, PermissionAction.ASK, PermissionAction.DENY
    settings = config.core_settings()
    assert settings.permissions == (
        PermissionRule("z*", deny),
        PermissionRule("a.*", ask),
        PermissionRule("plain", allow),
    )
    assert settings.agents["careful"].permissions == (PermissionRule("*", ask), PermissionRule("fs.read", allow))
    assert [settings.permission("careful", name) for name in ("zap", "fs.read", "plain")] == [ask, allow, ask]
    assert [settings.permission("brief", "plain"), settings.permission("", "zap")] == [deny, deny]
    assert settings.permission("", "other") is allow


def test_agents_may_have_fallback_models_of_their_own() -> None:
    """An empty list is none; left out, those of the server."""
    config = load("""
        [defaults]
        fallback_models = ["offline/lorem"]
        [agents.own]
        fallback_models = ["offline/echo", "offline/tools"]
        [agents.none]
        fallback_models = []
        [agents.server]
    """)
    settings = config.core_settings()
    found = {name: [model.model_id for model in settings.fallbacks(name)] for name in ("", "own", "none", "server")}
    assert found == {"": ["lorem"], "own": ["echo", "tools"], "none": [], "server": ["lorem"]}


def test_models_are_described() -> None:
    """Prices are exact, as numbers and as texts; what is left out stays unknown."""
    config = load("""
        [providers.local]
        kind = "openai_chat"
        only_listed_models = true
        [models."local/vendor/qwen-3"]
        name = "Qwen"
        description = "Runs in the cellar"
        context_window_tokens = 32768
        max_output_tokens = 4096
        input_usd_per_million = 0.000000000001
        output_usd_per_million = "123456.123456789012"
        cache_read_usd_per_million = 0
        cache_write_usd_per_million = 1.1
        capabilities = ["tools", "images"]
        [models."offline/echo"]
        [agents.cellar]
        model = "local/vendor/qwen-3"
    """)
    assert config.models == {
        ModelRef("local", "vendor/qwen-3"): ModelSettings(
            name="Qwen",
            description="Runs in the cellar",
            context_window_tokens=32768,
            max_output_tokens=4096,
            prices=TokenPrices(input=1, output=123_456_123_456_789_012, cache_read=0, cache_write=1_100_000_000_000),
            capabilities=("tools", "images"),
        ),
        ModelRef("offline", "echo"): ModelSettings(),
    }


def test_budgets_are_exact_and_zero_is_none() -> None:
    """Money is not rounded on the way."""
    assert load("[limits]\nmax_turn_tokens = 0\nmax_session_cost_usd = 0.0").limits == Limits()
    config = load("""
        [limits]
        max_turn_tokens = 200000
        max_turn_cost_usd = 0.3
        max_session_tokens = 5
        max_session_cost_usd = "12.000000000001"
    """)
    assert config.limits.turn_budget == Budget(max_tokens=200_000, max_cost_pico_usd=300_000_000_000)
    assert config.limits.session_budget == Budget(max_tokens=5, max_cost_pico_usd=12_000_000_000_001)


MODEL = '[models."offline/echo"]\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[permissions]\n"fs.*" = "maybe"', """permissions."fs.*": 'maybe' is not one of allow, ask, deny"""),
        ('[permissions]\n"fs.*" = true', """permissions."fs.*": True is not one of allow, ask, deny"""),
        ('[permissions]\n"" = "ask"', 'permissions."": is an empty pattern, which no tool matches'),
        ('[permissions]\nfs.read = "ask"', 'permissions."fs": is a table: patterns with dots need quotes'),
        ('[agents.x.permissions]\n"*" = "no"', """agents.x.permissions."*": 'no' is not one of allow, ask, deny"""),
        ('[agents.x.permissions]\n"" = "ask"', 'agents.x.permissions."": is an empty pattern'),
        ("[agents.x]\npermissions = 1", "agents.x.permissions: expected `object`, got `int`"),
        (
            '[agents.x]\nfallback_models = ["offline/echo", "no/model"]',
            "agents.x.fallback_models[1]: 'no/model' names no configured provider; there are: offline",
        ),
        ('[models."no/model"]', """models."no/model": 'no/model' names no configured provider; there are: offline"""),
        ("[models.echo]", """models."echo": 'echo' is not of the form provider/model"""),
        ("[models.offline.echo]\nname = 'x'", 'models."offline": holds tables: a name with dots needs quotes'),
        ('[models."offline/new"]', 'models."offline/new": does not exist: offline models cannot be added'),
        ('[models]\n"offline/echo" = 1', 'models."offline/echo": expected `object`, got `int`'),
        (MODEL + "window = 1", 'models."offline/echo".window: is not a known key'),
        (MODEL + "context_window_tokens = 0", 'models."offline/echo".context_window_tokens: expected `int` >= 1'),
        (MODEL + "max_output_tokens = 1.5", 'models."offline/echo".max_output_tokens: expected `int'),
        (
            MODEL + "input_usd_per_million = -0.1",
            'models."offline/echo".input_usd_per_million: expected from 0 to 1000000 USD',
        ),
        (MODEL + "output_usd_per_million = nan", 'models."offline/echo".output_usd_per_million: expected from 0 to'),
        (MODEL + "cache_read_usd_per_million = 1e7", 'models."offline/echo".cache_read_usd_per_million: expected from'),
        (
            MODEL + "cache_write_usd_per_million = 0.0000000000001",
            'models."offline/echo".cache_write_usd_per_million: expected at most 12 decimals',
        ),
        (
            MODEL + 'input_usd_per_million = "$1"',
            'models."offline/echo".input_usd_per_million: expected USD as a number',
        ),
        (
            MODEL + "input_usd_per_million = true",
            'models."offline/echo".input_usd_per_million: expected USD as a number',
        ),
        (
            MODEL + 'capabilities = ["tools", "flight"]',
            """models."offline/echo".capabilities[1]: 'flight' is not one of """
            "tools, images, documents, reasoning",
        ),
        ("[compaction]\nthreshold = 1", "compaction.threshold: expected `float` <= 0.99"),
        ("[compaction]\nthreshold = 0.09", "compaction.threshold: expected `float` >= 0.1"),
        ("[compaction]\nkeep = 0.04", "compaction.keep: expected `float` >= 0.05"),
        ("[compaction]\nthreshold = 0.95\nkeep = 0.91", "compaction.keep: expected `float` <= 0.9"),
        ("[compaction]\nthreshold = 0.3", "compaction.keep: must be less than compaction.threshold, 0.3"),
        ('[compaction]\nmodel = "echo"', "compaction.model: 'echo' is not of the form provider/model"),
        ("[agents]\nx = 1", "agents.x: expected `object`, got `int`"),
        ("[agents.x]\nshape = 1", "agents.x.shape: is not a known key"),
        ("[agents.x]\nmodel = 1", "agents.x.model: expected `str`, got `int`"),
        ('[agents.x]\nmodel = {provider_id = "offline", model_id = "echo"}', "agents.x.model: expected `str`, got"),
        ("[agents.x]\nfallback_models = 1", "agents.x.fallback_models: expected `array`, got `int`"),
        ("[agents.x]\nfallback_models = [1]", "agents.x.fallback_models[0]: expected `str`, got `int`"),
        (MODEL + "prices = 1", 'models."offline/echo".prices: is not a known key'),
        ('[providers.x]\nkind = "anthropic"\ntimeout_seconds = 0', "providers.x.timeout_seconds: expected `float` > 0"),
        (
            '[providers.x]\nkind = "anthropic"\nmax_output_tokens = 0',
            "providers.x.max_output_tokens: expected `int` >= 1",
        ),
        ("[retries]\nmax_retries = 21", "retries.max_retries: expected `int` <= 20"),
        ("[retries]\nfirst_delay_seconds = 0", "retries.first_delay_seconds: expected `float` > 0"),
        ("[limits]\nflush_interval_seconds = 0.21", "limits.flush_interval_seconds: expected `float` <= 0.2"),
        ("[limits]\nmax_file_bytes = 1", "limits.max_file_bytes: is not a known key"),
        ("[limits]\nmax_turn_cost_pico_usd = 1", "limits.max_turn_cost_pico_usd: is not a known key"),
        ("[files]\nmax_bytes = 0", "files.max_bytes: expected `int` >= 1"),
        ("[limits]\nmax_turn_tokens = -1", "limits.max_turn_tokens: expected `int` >= 0"),
        ("[limits]\nmax_session_cost_usd = -1", "limits.max_session_cost_usd: expected from 0 to 1000000 USD"),
        ('[limits]\nmax_turn_cost_usd = "much"', "limits.max_turn_cost_usd: expected USD as a number or a text"),
        ("[defaults]\nhost_messages = 1", "defaults.host_messages: expected `bool`, got `int`"),
    ],
)
def test_errors_name_the_key_of_what_cannot_be(text: str, message: str) -> None:
    """Whoever reads it knows what to mend."""
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert str(caught.value).startswith(f"test.toml: {message}")


def test_options_win_over_variables_and_variables_over_the_file() -> None:
    """An empty variable counts as unset."""
    text = '[server]\nlisten = "a:1"\n[storage]\npath = "file.db"\n[log]\nlevel = "error"\n'
    environ = {"TURNWIRE_LISTEN": "b:2", "TURNWIRE_STORAGE_PATH": "env.db", "TURNWIRE_LOG_LEVEL": ""}
    config = load(text, environ, {"--listen": "unix:/run/t.sock"})
    assert (config.server.listen, config.log.level) == ("unix:/run/t.sock", "error")
    assert config.storage.path == Path.cwd() / "env.db"


def test_relative_paths_start_at_the_folder_of_the_file(tmp_path: Path) -> None:
    """Wherever the server is started."""
    (tmp_path / "etc").mkdir()
    file = tmp_path / "etc" / "t.toml"
    file.write_text('[storage]\npath = "data.db"\n')
    assert load_config(Path("etc/t.toml"), {}).storage.path == tmp_path / "etc" / "data.db"
    assert load_config(Path("etc/t.toml"), {}, {"--db": "data.db"}).storage.path == tmp_path / "data.db"


def test_the_file_is_found_in_the_order_that_is_promised(tmp_path: Path) -> None:
    """Given path, TURNWIRE_CONFIG, ./turnwire.toml."""
    for name in ("given", "named", "turnwire"):
        (tmp_path / f"{name}.toml").write_text(f'[server]\nlisten = "{name}:1"\n')
    environ = {"TURNWIRE_CONFIG": "named.toml"}
    assert load_config(Path("given.toml"), environ).server.listen == "given:1"
    assert load_config(None, environ).server.listen == "named:1"
    assert load_config(None, {}).server.listen == "turnwire:1"


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "[::1]:50051", "0.0.0.0:1", "localhost:65535", "unix:t.sock"])
def test_addresses_that_are_accepted(listen: str) -> None:
    """Hosts, both kinds of IP addresses, socket files."""
    assert load_config(None, {"TURNWIRE_LISTEN": listen}).server.listen == listen


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("listen = 1", "test.toml: listen: is not a known section"),
        ("server = 1", "test.toml: server: must be a table"),
        ("[server]\nport = 1", "test.toml: server.port: is not a known key"),
        ("[server]\nlisten = 1", "test.toml: server.listen: expected `str`, got `int`"),
        ('[server]\nlisten = "here"', "test.toml: server.listen: 'here' is neither host:port nor unix:path"),
        ('[server]\nlisten = "a:65536"', "test.toml: server.listen: 'a:65536' is neither host:port nor unix:path"),
        ("[server]\nheartbeat_seconds = nan", "test.toml: server.heartbeat_seconds: expected `float` > 0.0"),
        (
            "[server]\nmax_message_bytes = 9",
            "test.toml: server.max_message_bytes: must be at least limits.max_message_bytes, 33554432",
        ),
        ("[storage]\npath = 3", "test.toml: storage.path: expected a path"),
        ('[storage]\npath = ""', "test.toml: storage.path: names no file"),
        ('[files]\nroots = ["/no/such"]', "test.toml: files.roots[0]: /no/such is not a folder"),
        ("[limits]\nmax_steps = 0", "test.toml: limits.max_steps: expected `int` >= 1"),
        (
            '[log]\nlevel = "loud"',
            "test.toml: log.level: 'loud' is not one of debug, info, warning, error",
        ),
        ("[providers]\nx = 1", "test.toml: providers.x: expected `object`, got `int`"),
        ("[providers.x]", "test.toml: providers.x.kind: is required"),
        (
            '[providers.x]\nkind = "openai"',
            "test.toml: providers.x.kind: 'openai' is not one of openai_chat, openai_responses, anthropic, offline",
        ),
        ('[providers."a/b"]', "test.toml: providers.a/b: is not a name of letters, digits, '_', '-' and '.'"),
        (
            '[providers.x]\nkind = "offline"\nonly_listed_models = true',
            "test.toml: providers.x.models: is empty, but only_listed_models is set",
        ),
        (
            '[agents.x]\ncolor = "red"',
            "test.toml: agents.x.color: expected `str` matching regex '^(#[0-9a-fA-F]{6})?$'",
        ),
        (
            '[agents.x]\nmodel = "no/model"',
            "test.toml: agents.x.model: 'no/model' names no configured provider; there are: offline",
        ),
        ('[defaults]\nmodel = "echo"', "test.toml: defaults.model: 'echo' is not of the form provider/model"),
        (
            '[defaults]\nmodel = "x/b"\n[providers.x]\nkind = "offline"\nonly_listed_models = true\nmodels = ["a"]',
            "test.toml: defaults.model: 'x/b' is not among providers.x.models",
        ),
    ],
)
def test_errors_name_the_file_and_the_key(text: str, message: str) -> None:
    """Whoever reads it knows where to look."""
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"TURNWIRE_LISTEN": "x"}, "TURNWIRE_LISTEN: 'x' is neither host:port nor unix:path"),
        ({"TURNWIRE_LOG_FORMAT": "xml"}, "TURNWIRE_LOG_FORMAT: 'xml' is not one of text, json"),
        (
            {"TURNWIRE_DEFAULT_MODEL": "openai/gpt"},
            "TURNWIRE_DEFAULT_MODEL: 'openai/gpt' names no configured provider; there are: offline",
        ),
        ({"TURNWIRE_CONFIG": "no.toml"}, "TURNWIRE_CONFIG: there is no file no.toml"),
    ],
)
def test_errors_name_the_variable(environ: dict[str, str], message: str) -> None:
    """A value of the environment is not blamed on the file."""
    with pytest.raises(ConfigError) as caught:
        load_config(None, environ)
    assert str(caught.value) == message


def test_a_missing_or_broken_file_is_named() -> None:
    """Both stop the start."""
    with pytest.raises(ConfigError, match=r"^no\.toml: cannot be read: "):
        load_config(Path("no.toml"), {})
    with pytest.raises(ConfigError, match=r"^test\.toml: is not valid TOML: "):
        load("[server")


@pytest.mark.parametrize(
    "line",
    ['api_key = "sk-secret"', 'api_key_env = "sk-secret"', 'base_url = "https://me:sk-secret@host/v1"'],
)
def test_a_key_in_the_file_is_refused_and_not_repeated(line: str) -> None:
    """Error messages end up in logs and bug reports."""
    with pytest.raises(ConfigError) as caught:
        load(f'[providers.x]\nkind = "openai_chat"\n{line}\n')
    assert "sk-secret" not in str(caught.value)


def test_mcp_servers_are_read() -> None:
    """A relative folder starts at the file's; agents name tools by patterns."""
    config = load("""
        [mcp.fs]
        command = "npx"
        args = ["-y", "x"]
        env = ["TOKEN"]
        cwd = "."
        [mcp.web]
        url = "https://example.com/mcp"
        headers_env = { Authorization = "TOKEN" }
        timeout_seconds = 5
        [agents.review]
        tools = ["fs.*"]
    """)
    assert config.mcp == {
        "fs": McpSettings(command="npx", args=("-y", "x"), env=("TOKEN",), cwd=Path().absolute()),
        "web": McpSettings(url="https://example.com/mcp", headers_env={"Authorization": "TOKEN"}, timeout_seconds=5),
    }
    assert config.agents["review"].tools == ("fs.*",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[mcp.a]", "mcp.a: needs either command or url"),
        ('[mcp.a]\ncommand = "x"\nurl = "http://a"', "mcp.a: needs either command or url"),
        ('[mcp."a.b"]\ncommand = "x"', "mcp.a.b: is not a name of at most 32 letters, digits, '_' and '-'"),
        ('[mcp.a]\nurl = "http://user:word@host/"', "mcp.a.url: must be http:// or https:// and a host, without user"),
        (
            '[mcp.a]\ncommand = "x"\nenv = ["sk-secret"]',
            "mcp.a: env and headers_env take names of environment variables",
        ),
        ('[mcp.a]\ncommand = "x"\ntimeout_seconds = 0', "mcp.a.timeout_seconds: expected `float` > 0"),
        ('[mcp.a]\ncommand = "x"\nwhat = 0', "mcp.a.what: is not a known key"),
        ('[mcp.a]\nurl = "http://a"\nargs = ["x"]', "mcp.a.args: is not for a server with a url"),
        ('[mcp.a]\ncommand = "x"\nheaders_env = {A = "B"}', "mcp.a.headers_env: is not for a server with a command"),
        (
            '[mcp.a]\nurl = "http://a"\nheaders_env = {"A\\nB" = "C"}',
            "mcp.a.headers_env: has a key that is not the name",
        ),
        ('[mcp.a]\ncommand = "x"\ncwd = "/no/such/folder"', "mcp.a.cwd: /no/such/folder is not a folder"),
        ('[agents.""]', 'agents."": is an agent without a name'),
        ('[agents.a]\ntools = [""]', "agents.a.tools: has an empty pattern"),
        (
            '[providers.a]\nkind = "openai_responses"\nreasoning_summary = "x"',
            """providers.a.reasoning_summary: 'x' is not one of "", auto""",
        ),
        ("[log]\nlevel = 1", "log.level: expected `str`, got `int`; one of debug, info"),
        ("[limits]\nmax_repeated_calls = 1", "limits.max_repeated_calls: "),
    ],
)
def test_wrong_mcp_settings_name_themselves(text: str, message: str) -> None:
    """Values that may be secrets are not repeated."""
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert str(caught.value).startswith(f"test.toml: {message}")
    assert "secret" not in str(caught.value)


def test_mcp_without_its_package_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the start, with the command that installs it."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"mcp: needs a package that is not installed: pip install 'turnwire\[mcp\]'"):
        load('[mcp.a]\ncommand = "x"')
    assert load("").mcp == {}
