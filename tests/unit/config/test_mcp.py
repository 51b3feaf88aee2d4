"""The sections of MCP servers."""

import importlib.util
from pathlib import Path

import pytest

from tests.support.fakes.config_file import load
from turnwire.config.configuration import ConfigError
from turnwire.tools.settings import McpSettings


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
        ('[mcp.a]\ncommand = "x"\ntimeout_seconds = 0', "mcp.a.timeout_seconds: expected a number > 0"),
        ('[mcp.a]\ncommand = "x"\nwhat = 0', "mcp.a.what: is not a known key"),
        ('[mcp.a]\nurl = "http://a"\nargs = ["x"]', "mcp.a.args: is not for a server with a url"),
        ('[mcp.a]\ncommand = "x"\nheaders_env = {A = "B"}', "mcp.a.headers_env: is not for a server with a command"),
        (
            '[mcp.a]\nurl = "http://a"\nheaders_env = {"A\\nB" = "C"}',
            "mcp.a.headers_env: has a key that is not the name",
        ),
        ('[mcp.a]\ncommand = "x"\ncwd = "/no/such/folder"', "mcp.a.cwd: /no/such/folder is not a folder"),
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
    with pytest.raises(ConfigError, match=r"mcp: needs the extra 'mcp', .*: pip install -r requirements-extras.txt"):
        load('[mcp.a]\ncommand = "x"')
    assert load("").mcp == {}
