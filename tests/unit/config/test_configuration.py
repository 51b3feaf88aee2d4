"""The configuration: defaults, the example, and errors that name the place."""

import re
import sys
import tomllib
from pathlib import Path

import msgspec
import pytest

from tests.support.fakes.config_file import load
from turnwire.config.configuration import Config, ConfigError, LogConfig, ServerConfig, StorageConfig, load_config
from turnwire.config.sections import SECTIONS, AuthConfig, TlsConfig
from turnwire.core.settings import Agent, CompactionSettings, CoreSettings, FileSettings, PermissionRule, QuotaLimits
from turnwire.domain.conversation.messages import ModelRef
from turnwire.domain.conversation.permissions import PermissionAction
from turnwire.domain.conversation.sessions import Budget
from turnwire.domain.limits import Limits
from turnwire.providers.settings import ProviderSettings
from turnwire.tools.settings import McpSettings

EXAMPLE = Path(__file__).parents[3] / "examples" / "turnwire.toml"
OFFLINE = ProviderSettings(kind="offline", name="Offline")


def test_without_any_file_the_offline_provider_answers() -> None:
    """The defaults need neither file nor key."""
    assert load_config(None, {}) == Config(
        server=ServerConfig(listen="127.0.0.1:50051"),
        storage=StorageConfig(path=Path("turnwire.db")),
        log=LogConfig(level="info", format="text"),
        default_model=ModelRef("offline", "echo"),
        providers={"offline": OFFLINE},
        provider_sources={"offline": "builtin"},
        default_roots=(Path.cwd(),),
        limits=Limits(),
    )


def test_tracing_without_its_packages_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that installs them. A server that does not trace needs none."""
    for name in ("opentelemetry.exporter.otlp.proto.http", "opentelemetry.exporter"):
        monkeypatch.setitem(sys.modules, name, None)
    load("[tracing]\nenabled = false")
    expected = r"tracing: needs the extra 'otel', .*: pip install -r requirements-extras.txt"
    with pytest.raises(ConfigError, match=expected):
        load("[tracing]\nenabled = true")


def test_the_address_of_a_database_has_no_password() -> None:
    """It would stand in the file and in lines of the log. What is no address of PostgreSQL is refused, too."""
    assert load('[storage]\nurl = "postgresql://me@db/x"').storage.url == "postgresql://me@db/x"
    queries = ("password", "sslpassword", "sslmode=verify-full&sslpassword", "oauth_client_secret")
    for url in ("postgresql://me:secret@db/x", *(f"postgresql://db/x?{query}=secret" for query in queries)):
        with pytest.raises(ConfigError, match=r"storage.url: has a password: set PGPASSWORD") as caught:
            load(f'[storage]\nurl = "{url}"')
        assert "secret" not in str(caught.value)
    for url in ("mysql://db/x", "turnwire.db", "postgresql://[::1/x"):
        with pytest.raises(ConfigError, match=r"storage.url: is not an? (PostgreSQL )?address"):
            load(f'[storage]\nurl = "{url}"')


def test_a_database_without_its_packages_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that installs them."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigError, match=r"storage.url: needs the extra 'postgres'"):
        load('[storage]\nurl = "postgresql://db/x"')


@pytest.mark.parametrize("name", SECTIONS)
def test_the_example_has_every_key(name: str) -> None:
    """Each section of which there is one is whole, in the order of the reference."""
    written = list(tomllib.loads(EXAMPLE.read_text())[name])
    fields = msgspec.structs.fields(SECTIONS[name])
    assert written == [f.encode_name for f in fields if f.encode_name in written or f.default is not None]


def test_the_example_shows_the_defaults() -> None:
    """Down to the first table that is an example, leaving a key out changes nothing."""
    example = load(EXAMPLE.read_text().partition("\n# The providers ")[0])
    assert example.storage.path == Path.cwd() / StorageConfig().path  # of a file, so it starts at the file's folder
    storage = msgspec.structs.replace(example.storage, path=StorageConfig().path)
    assert set(msgspec.structs.astuple(example.quotas)) == {0}  # which is as much as none
    assert msgspec.structs.replace(example, storage=storage, quotas=QuotaLimits()) == load_config(None, {})


def test_the_example_is_right_where_it_is_a_comment() -> None:
    """Keys and tables that are commented out exist."""
    text = re.sub(r"^# (?=\[|\w+ = )", "", EXAMPLE.read_text(), flags=re.MULTILINE)
    config = load(text)
    assert config.mcp == {"fs": McpSettings(command="npx", args=("-y", "@modelcontextprotocol/server-filesystem", "."))}
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
        default_roots=(tmp_path,),
        spool_folder=tmp_path,
        private_files=tuple(Path(f"turnwire-tokens.db{suffix}") for suffix in ("", "-journal", "-wal", "-shm")),
        limits=Limits(max_steps=3, flush_interval_seconds=0.1, client_tool_timeout_seconds=5.0),
        compaction=CompactionSettings(enabled=False, threshold=0.5, keep=0.05, model=ModelRef("offline", "echo")),
        host_messages=False,
    )


def test_tokens_and_key_are_private_files() -> None:
    """Wherever they are; the certificate is for everybody."""
    tls = TlsConfig(cert=Path("/etc/cert.pem"), key=Path("/etc/key.pem"))
    config = msgspec.structs.replace(load(""), tls=tls, auth=AuthConfig(tokens=Path("/var/tokens")))
    assert {Path("/var/tokens"), Path("/etc/key.pem")} < set(config.core_settings().private_files)
    assert Path("/etc/cert.pem") not in config.core_settings().private_files


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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("window = 1", "window: is not a known key"),
        ("context_window_tokens = 0", "context_window_tokens: expected a whole number >= 1"),
        ("max_output_tokens = 1.5", "max_output_tokens: expected a whole number"),
        ("input_usd_per_million = -0.1", "input_usd_per_million: expected from 0 to 1000000 USD"),
        ("output_usd_per_million = nan", "output_usd_per_million: expected from 0 to"),
        ("cache_read_usd_per_million = 1e7", "cache_read_usd_per_million: expected from"),
        ("cache_write_usd_per_million = 0.0000000000001", "cache_write_usd_per_million: expected at most 12 decimals"),
        ('input_usd_per_million = "$1"', "input_usd_per_million: expected USD as a number"),
        ("input_usd_per_million = true", "input_usd_per_million: expected USD as a number"),
        (
            'capabilities = ["tools", "flight"]',
            """capabilities[1]: 'flight' is not one of """
            "tools, images, documents, reasoning",
        ),
        ("prices = 1", "prices: is not a known key"),
    ],
)
def test_errors_name_the_key_of_a_model(text: str, message: str) -> None:
    """By the quoted name of the model."""
    with pytest.raises(ConfigError) as caught:
        load(f'[models."offline/echo"]\n{text}')
    assert str(caught.value).startswith(f'test.toml: models."offline/echo".{message}')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[permissions]\n"fs.*" = "maybe"', """permissions."fs.*": 'maybe' is not one of allow, ask, deny"""),
        ('[permissions]\n"fs.*" = true', """permissions."fs.*": True is not one of allow, ask, deny"""),
        ('[permissions]\n"" = "ask"', 'permissions."": is an empty pattern, which no tool matches'),
        ('[permissions]\nfs.read = "ask"', 'permissions."fs": is a table: patterns with dots need quotes'),
        ('[agents.x.permissions]\n"*" = "no"', """agents.x.permissions."*": 'no' is not one of allow, ask, deny"""),
        ('[agents.x.permissions]\n"" = "ask"', 'agents.x.permissions."": is an empty pattern'),
        ("[agents.x]\npermissions = 1", "agents.x.permissions: expected a table, got a whole number"),
        (
            '[agents.x]\nfallback_models = ["offline/echo", "no/model"]',
            "agents.x.fallback_models[1]: 'no/model' names no configured provider; configured are: offline",
        ),
        (
            '[models."no/model"]',
            """models."no/model": 'no/model' names no configured provider; configured are: offline""",
        ),
        ("[models.echo]", """models."echo": 'echo' is not of the form provider/model"""),
        ("[models.offline.echo]\nname = 'x'", 'models."offline": has tables: a name with dots needs quotes'),
        ('[models."offline/new"]', 'models."offline/new": does not exist: offline models cannot be added'),
        ('[models]\n"offline/echo" = 1', 'models."offline/echo": expected a table, got a whole number'),
        ("[compaction]\nthreshold = 1", "compaction.threshold: expected a number <= 0.99"),
        ("[compaction]\nthreshold = 0.09", "compaction.threshold: expected a number >= 0.1"),
        ("[compaction]\nkeep = 0.04", "compaction.keep: expected a number >= 0.05"),
        ("[compaction]\nthreshold = 0.95\nkeep = 0.91", "compaction.keep: expected a number <= 0.9"),
        ("[compaction]\nthreshold = 0.3", "compaction.keep: must be less than compaction.threshold, 0.3"),
        ('[compaction]\nmodel = "echo"', "compaction.model: 'echo' is not of the form provider/model"),
        ("[agents]\nx = 1", "agents.x: expected a table, got a whole number"),
        ("[agents.x]\nshape = 1", "agents.x.shape: is not a known key"),
        ("[agents.x]\nmodel = 1", "agents.x.model: expected text, got a whole number"),
        ('[agents.x]\nmodel = {provider_id = "offline", model_id = "echo"}', "agents.x.model: expected text, got"),
        ("[agents.x]\nfallback_models = 1", "agents.x.fallback_models: expected a list, got a whole number"),
        ("[agents.x]\nfallback_models = [1]", "agents.x.fallback_models[0]: expected text, got a whole number"),
        (
            '[providers.x]\nkind = "anthropic"\ntimeout_seconds = 0',
            "providers.x.timeout_seconds: expected a number > 0",
        ),
        (
            '[providers.x]\nkind = "anthropic"\nmax_output_tokens = 0',
            "providers.x.max_output_tokens: expected a whole number >= 1",
        ),
        ("[retries]\nmax_retries = 21", "retries.max_retries: expected a whole number <= 20"),
        ("[retries]\nfirst_delay_seconds = 0", "retries.first_delay_seconds: expected a number > 0"),
        ("[limits]\nflush_interval_seconds = 0.21", "limits.flush_interval_seconds: expected a number <= 0.2"),
        ("[limits]\nmax_file_bytes = 1", "limits.max_file_bytes: is not a known key"),
        ("[limits]\nmax_turn_cost_pico_usd = 1", "limits.max_turn_cost_pico_usd: is not a known key"),
        ("[files]\nmax_bytes = 0", "files.max_bytes: expected a whole number >= 1"),
        ("[limits]\nmax_turn_tokens = -1", "limits.max_turn_tokens: expected a whole number >= 0"),
        ("[limits]\nmax_session_cost_usd = -1", "limits.max_session_cost_usd: expected from 0 to 1000000 USD"),
        ('[limits]\nmax_turn_cost_usd = "much"', "limits.max_turn_cost_usd: expected USD as a number or a text"),
        ("[defaults]\nhost_messages = 1", "defaults.host_messages: expected true or false, got a whole number"),
        ('[agents.""]', 'agents."": is an agent without a name'),
        ('[agents.a]\ntools = [""]', "agents.a.tools: has an empty pattern"),
        (
            '[providers.a]\nkind = "openai_responses"\nreasoning_summary = "x"',
            """providers.a.reasoning_summary: 'x' is not one of "", auto""",
        ),
        ("[log]\nlevel = 1", "log.level: expected text, got a whole number; one of debug, info"),
        ("[limits]\nmax_repeated_calls = 1", "limits.max_repeated_calls: "),
    ],
)
def test_errors_name_the_key_of_what_cannot_be(text: str, message: str) -> None:
    """Whoever reads it knows what to mend."""
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert str(caught.value).startswith(f"test.toml: {message}")


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "[::1]:50051", "localhost:65535", "unix:t.sock"])
def test_addresses_that_are_accepted(listen: str) -> None:
    """Hosts, both kinds of IP addresses, socket files."""
    assert load_config(None, {"TURNWIRE_LISTEN": listen}).server.listen == listen


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("listen = 1", "listen: is not a known section"),
        ("server = 1", "server: must be a table"),
        ("[server]\nport = 1", "server.port: is not a known key"),
        ("[server]\nlisten = 1", "server.listen: expected text, got a whole number"),
        (
            '[storage]\nurl = "postgresql://h/d"\n[cluster]\nlisten = "127.0.0.1:1"\nadvertise = "0.0.0.0:1"',
            "cluster.advertise: no other node can connect to 0.0.0.0:1",
        ),
        ('[server]\nlisten = "here"', "server.listen: 'here' is neither host:port nor unix:path"),
        ('[server]\nlisten = "a:65536"', "server.listen: 'a:65536' is neither host:port nor unix:path"),
        ('[server]\nsocket_mode = "rw"', "server.socket_mode: expected text matching regex '^0?[0-7]{3}$'"),
        ("[server]\nsocket_mode = 384", "server.socket_mode: expected text, got a whole number"),
        ('[server]\nsocket_group = "no such group"', "server.socket_group: this machine has no group 'no such group'"),
        ("[server]\nheartbeat_seconds = nan", "server.heartbeat_seconds: expected a number > 0.0"),
        ("[storage]\npath = 3", "storage.path: expected a path"),
        ('[storage]\npath = ""', "storage.path: does not name a file"),
        ('[files]\nroots = ["/no/such"]', "files.roots[0]: /no/such is not a folder"),
        ('[tenants.acme]\nroots = ["/no/such"]', "tenants.acme.roots[0]: /no/such is not a folder"),
        ("[tenants.acme]\nroots = 1", "tenants.acme.roots: expected a list, got a whole number"),
        ("[tenants.acme]\nroot = []", "tenants.acme.root: is not a known key"),
        ("[tenants]\nacme = 1", "tenants.acme: expected a table, got a whole number"),
        (
            "[tenants.-acme]",
            "tenants.-acme: is not a name of at most 64 letters, digits, '.', '_' and '-' that starts with "
            "a letter or digit",
        ),
        ("[limits]\nmax_steps = 0", "limits.max_steps: expected a whole number >= 1"),
        ('[log]\nlevel = "loud"', "log.level: 'loud' is not one of debug, info, warning, error"),
        (
            '[tracing]\nendpoint = "http://me:word@host/v1/traces"',
            "tracing.endpoint: must be http:// or https:// and a host, without user name or password",
        ),
        ("[tracing]\nsample_ratio = 1.1", "tracing.sample_ratio: expected a number <= 1.0"),
        ("[providers]\nx = 1", "providers.x: expected a table, got a whole number"),
        ("[providers.x]", "providers.x.kind: is required"),
        (
            '[providers.x]\nkind = "openai"',
            "providers.x.kind: 'openai' is not one of openai_chat, openai_responses, anthropic, offline",
        ),
        ('[providers."a/b"]', "providers.a/b: is not a name of letters, digits, '_', '-' and '.'"),
        (
            '[providers.x]\nkind = "offline"\nonly_listed_models = true',
            "providers.x.models: is empty, but only_listed_models is set",
        ),
        ('[agents.x]\ncolor = "red"', "agents.x.color: expected text matching regex '^(#[0-9a-fA-F]{6})?$'"),
        (
            '[agents.x]\nmodel = "no/model"',
            "agents.x.model: 'no/model' names no configured provider; configured are: offline",
        ),
        ('[defaults]\nmodel = "echo"', "defaults.model: 'echo' is not of the form provider/model"),
        (
            '[defaults]\nmodel = "x/b"\n[providers.x]\nkind = "offline"\nonly_listed_models = true\nmodels = ["a"]',
            "defaults.model: 'x/b' is not among providers.x.models",
        ),
    ],
)
def test_errors_name_the_file_and_the_key(text: str, message: str) -> None:
    """Whoever reads it knows where to look."""
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert str(caught.value) == f"test.toml: {message}"
