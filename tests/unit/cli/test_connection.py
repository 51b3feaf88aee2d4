"""Connections of commands."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.support.servers.authority import Authority
from turnwire.cli.connection import ConnectionProblem, Endpoint, takes_connection

TOKEN = "tw_secret"


@click.command()
@takes_connection
@click.option("--word", default="")
def app(connection: Endpoint, word: str) -> None:
    """Prints what it was handed."""
    click.echo(f"{connection.target} {connection.token == TOKEN} {connection.tenant} {connection.ca} {word}")


def shown(*arguments: str, **variables: str) -> str:
    """Returns what the command prints."""
    done = CliRunner().invoke(app, arguments, env=variables)
    assert done.exit_code == 0, done.output
    return done.output.strip()


def test_options_win_over_variables() -> None:
    """Options of the command itself and of the connection."""
    assert shown("--word", "hi") == "127.0.0.1:50051 False  None hi"
    variables = {"TURNWIRE_TARGET": "a:1", "TURNWIRE_TOKEN": TOKEN, "TURNWIRE_TENANT": "acme", "TURNWIRE_CA": "ca.pem"}
    assert shown(**variables) == "a:1 True acme ca.pem"
    assert shown("--target", "b:2", "--tenant", "other", **variables) == "b:2 True other ca.pem"


def test_a_token_can_be_in_a_file(tmp_path: Path) -> None:
    """Without the end of its line; a token that is named directly wins."""
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    assert shown("--token-file", str(file)).split()[1] == "True"
    assert shown("--token-file", str(file), TURNWIRE_TOKEN="other").split()[1] == "False"


@pytest.mark.parametrize("token", ["secret\x1b[31m", "sécret", "sec\nret"])
def test_a_token_that_cannot_be_is_refused_without_showing_it(token: str) -> None:
    """With exit code 2, before the command runs."""
    done = CliRunner().invoke(app, ["--token", token])
    assert done.exit_code == 2
    assert "cret" not in done.output


def test_a_token_file_that_is_not_there_is_named() -> None:
    """With exit code 2."""
    done = CliRunner().invoke(app, ["--token-file", "nowhere"])
    assert (done.exit_code, "nowhere" in done.output) == (2, True)


@pytest.mark.parametrize("target", ["192.0.2.1:1", "turnwire.example:443", "[2001:db8::1]:1", "dns:///a:1"])
def test_a_token_never_goes_unencrypted_to_another_machine(target: str) -> None:
    """Without a token, the choice is the caller's."""
    with pytest.raises(ConnectionProblem, match="TLS"):
        Endpoint(target, token=TOKEN).open()
    Endpoint(target).open().close()
    Endpoint(target, token=TOKEN, tls=True).open().close()


@pytest.mark.parametrize("target", ["127.0.0.1:1", "localhost:1", "[::1]:1", "unix:/run/turnwire.sock"])
def test_this_machine_gets_a_token_as_it_is(target: str) -> None:
    """Nobody listens between."""
    Endpoint(target, token=TOKEN).open().close()


def test_a_certificate_needs_its_key(tmp_path: Path) -> None:
    """And both need to be there."""
    with pytest.raises(ConnectionProblem, match="go together"):
        Endpoint("a:1", cert=tmp_path / "a").open()
    with pytest.raises(ConnectionProblem, match="No such file"):
        Endpoint("a:1", cert=tmp_path / "a", key=tmp_path / "b").open()


def test_files_without_certificates_are_named(tmp_path: Path) -> None:
    """Before gRPC finds them useless, again and again."""
    Authority("Turnwire test").issue("client").write(tmp_path, "client")
    (tmp_path / "other.key").write_bytes(Authority("Other").issue("client").key)
    cert, key = tmp_path / "client.pem", tmp_path / "client.key"
    Endpoint("a:1", ca=cert, cert=cert, key=key).open().close()
    with pytest.raises(ConnectionProblem, match=r"^--ca: .*client\.key has no certificate"):
        Endpoint("a:1", ca=key).open()
    for wrong in ((key, cert), (cert, tmp_path / "other.key")):
        with pytest.raises(ConnectionProblem, match=r"^--cert and --key: "):
            Endpoint("a:1", cert=wrong[0], key=wrong[1]).open()


def test_a_connection_does_not_show_its_token() -> None:
    """Not even in an error that prints it."""
    assert TOKEN not in repr(Endpoint("a:1", token=TOKEN))
