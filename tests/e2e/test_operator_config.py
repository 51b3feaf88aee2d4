"""`turnwire config` as an operator runs it."""

import json
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.support.servers.authority import Authority
from turnwire.cli.commands import app

SECRET = "sk-abcdefghijklmnop"


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def config(*arguments: str, text: str = "") -> Result:
    """Runs `turnwire config` with a file; nothing that it prints has the secret."""
    Path("turnwire.toml").write_text(text)
    done = CliRunner().invoke(app, ["config", *arguments], env={"OPENAI_API_KEY": SECRET})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert SECRET not in done.output
    return done


def test_valid_configuration() -> None:
    """Exit code 0."""
    done = config("check")
    assert (done.exit_code, done.output) == (0, "turnwire.toml is valid\n")
    done = config("check", "--json")
    expected = {"valid": True, "file": "turnwire.toml", "problems": [], "is_complete": True}
    assert (done.exit_code, json.loads(done.stdout)) == (0, expected)


def test_wrong_configuration() -> None:
    """Exit code 2; each problem is one line, or one object."""
    text = f'[server]\ncolor = "red"\n[log]\nlevel = "{SECRET}"\n'
    done = config("check", "--listen", "here", text=text)
    assert (done.exit_code, done.stdout.count("\n")) == (2, 3)
    assert "turnwire.toml: server.color: is not a known key\n" in done.stdout
    assert "--listen: 'here' is neither host:port nor unix:path\n" in done.stdout
    done = config("check", "--json", text=text)
    found = json.loads(done.stdout)
    assert (done.exit_code, found["valid"], found["is_complete"]) == (2, False, True)
    assert found["problems"][0] == {
        "key": "server.color",
        "source": "turnwire.toml",
        "problem": "is not a known key",
        "message": "turnwire.toml: server.color: is not a known key",
    }


def test_certificates_are_read() -> None:
    """They keep a server from starting, and are named by their keys."""
    Authority("Turnwire test").issue("server").write(Path(), "server")
    tls = '[tls]\ncert = "server.pem"\nkey = "server.key"\n'
    assert config("check", text=tls).exit_code == 0
    for text, problem in (
        (tls.replace("server.pem", "none.pem"), "tls.cert: {}/none.pem: No such file or directory"),
        (tls.replace("server.pem", "server.key"), "tls.cert: {}/server.key has no certificate in PEM"),
        (tls.replace("server.key", "server.pem"), "tls.key: {}/server.pem has no private key in PEM"),
        (tls + 'client_ca = "server.key"\n', "tls.client_ca: {}/server.key has no certificate in PEM"),
    ):
        done = config("check", text=text)
        assert (done.exit_code, done.output) == (2, f"turnwire.toml: {problem.format(Path.cwd())}\n")
    [found] = json.loads(config("check", "--json", text=tls.replace("server.key", "no.key")).stdout)["problems"]
    assert (found["key"], found["source"]) == ("tls.key", "turnwire.toml")


def test_more_problems_are_announced() -> None:
    """When the file cannot be read further."""
    done = config("check", text="[")
    assert done.exit_code == 2
    assert "There may be more problems" in done.stdout


def test_configuration_in_effect() -> None:
    """As TOML and as JSON."""
    text = f'[providers.own]\nkind = "openai_chat"\nname = "{SECRET}"\n'
    done = config("show", "--listen", "127.0.0.1:7", text=text)
    assert done.exit_code == 0
    assert 'listen = "127.0.0.1:7"  # --listen' in done.stdout
    found = json.loads(config("show", "--listen", "127.0.0.1:7", "--json", text=text).stdout)
    assert found["file"] == "turnwire.toml"
    assert found["values"] == tomllib.loads(done.stdout)
    assert found["sources"]["providers.openai"] == "OPENAI_API_KEY"
    assert found["values"]["providers"]["own"]["name"] == "***"
