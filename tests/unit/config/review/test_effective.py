"""The effective configuration makes the same one again, has the source of each value, and no secret."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from turnwire.config.configuration import Config, open_document, read_config
from turnwire.config.review.effective import Effective, effective_values
from turnwire.config.review.toml import written_toml


def effective(
    text: str, environ: dict[str, str] | None = None, options: dict[str, str] | None = None
) -> tuple[Config, Effective]:
    """Returns the configuration of a file, and what is shown of it."""
    Path("test.toml").write_text(text)
    document = open_document(Path("test.toml"), environ or {}, options)
    config = read_config(document)
    return config, effective_values(document, config, environ or {})


EVERYTHING = """
[server]
listen = "127.0.0.1:1"
[storage]
path = "here.db"
[limits]
max_turn_cost_usd = "0.075"
max_session_cost_usd = 1000000
[defaults]
model = "own/m"
fallback_models = ["offline/echo"]
[compaction]
model = "own/m"
[providers.own]
kind = "openai_chat"
base_url = "http://127.0.0.1:1/v1"
models = ["m", 'with "quotes"']
[models."own/m"]
context_window_tokens = 1000
capabilities = ["tools", "images"]
input_usd_per_million = 0.1
[agents.a]
system = '''
Several lines, "quotes" and \\ backslashes
'''
model = "own/m"
fallback_models = []
tools = ["fs.*"]
permissions = { "fs.*" = "ask", "*" = "deny" }
[permissions]
"z*" = "deny"
"a.*" = "allow"
[mcp.fs]
command = "server"
args = ["-y"]
env = ["HOME"]
[tenants.other]
roots = []
"""


@pytest.mark.parametrize("text", ["", EVERYTHING, (Path(__file__).parents[4] / "examples/turnwire.toml").read_text()])
def test_shown_configuration_is_the_same_again(text: str) -> None:
    """Written as TOML and read; only what counts as given by the file differs."""
    environ = {"OPENAI_API_KEY": "abcdefgh"}
    config, shown = effective(text, environ, {"--listen": "127.0.0.1:7"})
    again, shown_again = effective(written_toml(shown.values, shown.sources), environ)
    storage = msgspec.structs.replace(config.storage, path=config.storage.path.absolute())
    expected = msgspec.structs.replace(config, provider_sources={}, storage=storage)
    assert msgspec.structs.replace(again, provider_sources={}) == expected
    assert shown_again.values == shown.values


def test_sources() -> None:
    """A file, a variable, an option, or nobody."""
    environ = {"TURNWIRE_LOG_LEVEL": "error", "ANTHROPIC_API_KEY": "x"}
    _, shown = effective(
        "[server]\nheartbeat_seconds = 3\n[providers.own]\nkind = 'offline'", environ, {"--db": "d.db"}
    )
    expected = {
        "server.heartbeat_seconds": "file",
        "server.listen": "default",
        "storage.path": "--db",
        "log.level": "TURNWIRE_LOG_LEVEL",
        "providers.own": "file",
        "providers.offline": "default",
        "providers.anthropic": "ANTHROPIC_API_KEY",
    }
    assert {key: shown.sources[key] for key in expected} == expected
    assert shown.values["storage"]["path"] == str(Path("d.db").absolute())


SECRETS = ("in-a-query-1", "in-arguments-2", "in_arguments_3", "in-arguments-4", "pasted_as_name_5", "pasted_as_name_6")
MORE_SECRETS = ("in-a-header-10", "behind-an-option-11", "in-a-path-12")
SECRET_VALUES = ("of-a-variable-7", "of-a-variable-8", "of-a-variable-9")


def test_no_secret_is_shown() -> None:
    """Wherever a configuration can hold one, and whatever the environment holds."""
    one, two, three, four, five, six = SECRETS
    environ = dict(zip(("OWN_KEY", "HEADER_VALUE", "FOR_THE_PROGRAM"), SECRET_VALUES, strict=True))
    _, shown = effective(
        f"""
        [providers.own]
        kind = "openai_chat"
        base_url = "https://host/v1?key={one}"
        api_key_env = "OWN_KEY"
        name = "pasted {SECRET_VALUES[0]}"
        [providers.pasted]
        kind = "openai_chat"
        api_key_env = "{five}"
        [agents.a]
        system = "Use {SECRET_VALUES[1]} and {SECRET_VALUES[2]}."
        [mcp.program]
        command = "server"
        args = ["--api-key", "{two}", "--token={three}", "Authorization: {four}", "https://me:{one}@host/",
            "-H", "Authorization: Bearer {MORE_SECRETS[0]}", "-p{MORE_SECRETS[1]}", "https://host/{MORE_SECRETS[2]}/mcp"]
        env = ["FOR_THE_PROGRAM", "{six}"]
        [mcp.address]
        url = "https://host/mcp/{MORE_SECRETS[2]}?token={one}"
        headers_env = {{ Authorization = "HEADER_VALUE", Other = "{five}" }}
        """,
        environ,
    )
    texts: list[Any] = [json.dumps(shown.values), json.dumps(shown.sources), written_toml(shown.values, shown.sources)]
    assert [secret for secret in (*SECRETS, *MORE_SECRETS, *SECRET_VALUES) for text in texts if secret in text] == []
    assert "OWN_KEY" in texts[0]
    assert "HEADER_VALUE" in texts[0]
