"""`turnwire token`."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from turnwire.cli.commands import app


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def token(*arguments: str) -> Result:
    """Runs the command."""
    return CliRunner().invoke(app, ["token", *arguments])


def test_a_token_is_printed_alone() -> None:
    """So that a script can take it; what it is comes on stderr, and the file has only its hash."""
    done = token("create", "--subject", "eve", "--tenant", "acme", "--role", "reader", "--expires", "12h")
    assert done.exit_code == 0
    assert re.fullmatch(r"tw_[0-9A-Za-z]{49}\n", done.stdout)
    place = re.escape(str(Path.cwd() / "turnwire-tokens.db"))
    assert re.search(rf"created tok_\w+ in {place}: acme eve reader, expires .* is not shown again", done.stderr)
    assert 'add "token" to auth.methods' in done.stderr
    assert done.stdout.strip().encode() not in Path("turnwire-tokens.db").read_bytes()


def test_tokens_are_listed_and_revoked() -> None:
    """Revoking again changes nothing."""
    made = json.loads(token("create", "--subject", "eve", "--expires", "never", "--json").stdout)
    assert (made["tenant"], made["role"], made["expires_at"]) == ("default", "writer", None)
    [listed] = json.loads(token("list", "--json").stdout)
    assert listed == {key: value for key, value in made.items() if key != "token"}
    heads, line = token("list").stdout.splitlines()
    assert heads.split() == ["token", "tenant", "subject", "role", "created", "(UTC)", "expires", "last", "used"]
    day, minute = made["created_at"][:16].split("T")
    assert line.split() == [made["id"], "default", "eve", "writer", day, minute, "never", "never"]
    assert line.index("eve") == heads.index("subject")
    for _ in range(2):
        assert token("revoke", made["id"]).stdout == f"revoked {made['id']}\n"
    assert "revoked 20" in token("list").stdout


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--subject", ""], "--subject"),
        (["--subject", "e\nve"], "--subject"),
        (["--subject", "eve", "--tenant", "../acme"], "--tenant"),
        (["--subject", "eve", "--role", "king"], "--role"),
        (["--subject", "eve", "--role", ""], "--role"),
        (["--subject", "eve", "--expires", "soon"], "--expires"),
        (["--subject", "eve", "--expires", "0d"], "--expires"),
        (["--subject", "eve", "--expires", "9999999d"], "--expires"),
    ],
)
def test_wrong_options_create_nothing(arguments: list[str], problem: str) -> None:
    """Exit code 2, and the line names the option."""
    done = token("create", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"turnwire: {problem}")
    assert not Path("turnwire-tokens.db").exists()


@pytest.fixture
def server_folder(tmp_path: Path) -> Path:
    """A folder with a configuration that does not say where the database is."""
    folder = tmp_path / "server"
    folder.mkdir()
    (folder / "turnwire.toml").write_text("[auth]\nmethods = ['token']")
    return folder


@pytest.mark.parametrize("databases", [[], [".", "server"]])
def test_tokens_of_a_server_whose_folder_is_unknown_are_refused(server_folder: Path, databases: list[str]) -> None:
    """From another folder than the configuration's: they could end where no server reads them."""
    for folder in databases:
        Path(folder, "turnwire.db").touch()
    for arguments in (["create", "--subject", "eve"], ["list"], ["revoke", "tok_1"]):
        done = token(*arguments, "--config", "server/turnwire.toml")
        assert (done.exit_code, done.stdout) == (2, "")
        assert done.stderr.startswith("turnwire: server/turnwire.toml: storage.path: is left out")
    assert list(Path().glob("**/*tokens*")) == []
    done = token(
        "create", "--subject", "eve", "--config", "server/turnwire.toml", "--db", str(server_folder / "turnwire.db")
    )
    assert (done.exit_code, (server_folder / "turnwire-tokens.db").exists()) == (0, True)


def test_tokens_are_beside_the_only_database(server_folder: Path) -> None:
    """In the configuration's folder or in this one."""
    (server_folder / "turnwire.db").touch()
    assert token("create", "--subject", "eve", "--config", "server/turnwire.toml").exit_code == 0
    assert (server_folder / "turnwire-tokens.db").exists()
    assert "eve" in token("list", "--config", str(server_folder / "turnwire.toml")).stdout
    (server_folder / "turnwire.db").rename("turnwire.db")
    assert token("create", "--subject", "ada", "--config", "server/turnwire.toml").exit_code == 0
    assert Path("turnwire-tokens.db").exists()


def test_a_server_without_tokens_is_no_mistake_to_create() -> None:
    """Neither listing nor revoking makes a file; the error names the place."""
    for arguments in (["list"], ["revoke", "tok_1"]):
        done = token(*arguments)
        assert (done.exit_code, "turnwire-tokens.db: No such file" in done.stderr) == (1, True)
    assert not Path("turnwire-tokens.db").exists()


def test_an_unknown_token_is_named() -> None:
    """With exit code 1."""
    token("create", "--subject", "eve")
    done = token("revoke", "tok_1")
    assert (done.exit_code, "token 'tok_1' was not found" in done.stderr) == (1, True)


def test_a_wrong_configuration_is_named() -> None:
    """As by the server."""
    Path("turnwire.toml").write_text("[auth]\nmethods = 7\n")
    done = token("list")
    assert (done.exit_code, "auth.methods" in done.stderr) == (2, True)
