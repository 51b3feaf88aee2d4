"""TLS and authentication in the configuration, and addresses that other machines can reach."""

from pathlib import Path

import pytest

from tests.support.fakes.config_file import load
from turnwire.config.addresses import is_open
from turnwire.config.configuration import ConfigError

TLS = '[tls]\ncert = "server.pem"\nkey = "server.key"\n'
JWT = '[auth.jwt]\nissuer = "https://id.example"\naudience = "turnwire"\nkeys = "jwks.json"\n'


def test_paths_start_at_the_file() -> None:
    """Those of TLS, of the tokens and of the keys."""
    tokens = '[auth]\nmethods = ["token", "jwt"]\ntokens = "tokens.db"\n'
    config = load(TLS + tokens + JWT)
    assert (config.tls.cert, config.tls.key) == (Path.cwd() / "server.pem", Path.cwd() / "server.key")
    assert (config.token_file(), config.auth.jwt.keys) == (Path.cwd() / "tokens.db", str(Path.cwd() / "jwks.json"))


def test_tokens_are_beside_the_database() -> None:
    """In a file of their own."""
    assert load('[storage]\npath = "data/talk.db"\n').token_place() == str(Path.cwd() / "data/talk-tokens.db")


def test_tokens_are_in_the_database_of_postgresql() -> None:
    """Unless a file is named for them."""
    url = '[storage]\nurl = "postgresql://u@h/d"\n'
    assert load(url).token_place() == "postgresql://u@h/d"
    named = load('[auth]\nmethods = ["token"]\ntokens = "mine.db"\n' + url)
    assert named.token_place() == str(Path.cwd() / "mine.db")


@pytest.mark.parametrize("keys", ["https://id.example/jwks", "http://127.0.0.1:8080/jwks", "http://localhost/jwks"])
def test_keys_come_over_https_or_from_this_machine(keys: str) -> None:
    """The URL is kept as it is."""
    config = load('[auth]\nmethods = ["jwt"]\n' + JWT.replace("jwks.json", keys))
    assert config.auth.jwt.keys == keys


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[tls]\ncert = "a"\n', "tls.key: is required"),
        ('[tls]\nclient_ca = "a"\n', "tls.cert: is required"),
        ('[auth]\nmethods = ["password"]\n', "auth.methods[0]: 'password' is not one of token, jwt, mtls"),
        (
            '[auth.jwt]\nissuer = "a"\naudience = "b"\nkeys = "c"\nalgorithms = ["HS256"]\n',
            "auth.jwt.algorithms[0]: 'HS256' is not one of RS256, ",
        ),
        (
            '[auth.mtls.holders]\nci = { tenant = "acme", role = "king" }\n',
            "auth.mtls.holders[...].role: 'king' is not one of reader, writer, admin",
        ),
        ('[auth]\nmethods = ["jwt"]\n', "auth.jwt: is required"),
        (JWT, 'auth.jwt: has no effect: add "jwt" to auth.methods'),
        ('[auth]\ntokens = "a"\n', 'auth.tokens: has no effect: add "token" to auth.methods'),
        ('[auth]\nmethods = ["mtls"]\n[auth.mtls]\n' + TLS, "auth.mtls: needs tls.client_ca"),
        (
            '[auth]\nmethods = ["mtls"]\n[auth.mtls]\nsubject = "first_alternative_name"\n[auth.mtls.holders]\n'
            '"ci.example" = { tenant = "acme", role = "writer" }\n' + TLS + 'client_ca = "c"\n',
            'auth.mtls.holders."ci.example": a first alternative name has its kind: one of "DNS:ci.example", ',
        ),
        (
            '[auth]\nmethods = ["mtls"]\n[auth.mtls]\n[web]\nlisten = "127.0.0.1:1"\n' + TLS + 'client_ca = "c"\n',
            "web.listen: clients of the web listener present no certificates",
        ),
        (TLS + 'client_ca = "c"\n[web]\nlisten = "127.0.0.1:1"\n', "web.listen: clients of the web listener present"),
        ('[auth]\nmethods = ["token"]\ntokens = "turnwire.db"\n', "auth.tokens: is the database"),
        ('[auth]\nmethods = ["jwt"]\n' + JWT.replace("jwks.json", "http://id.example/jwks"), "auth.jwt.keys: must be"),
        ('[auth]\nmethods = ["jwt"]\n' + JWT.replace("jwks.json", "ftp://id.example/jwks"), "auth.jwt.keys: must be"),
        ('[auth]\nmethods = ["jwt"]\n' + JWT + 'algorithms = ["HS256"]\n', "auth.jwt.algorithms"),
        ('[auth]\nmethods = ["jwt"]\n' + JWT + 'algorithms = ["none"]\n', "auth.jwt.algorithms"),
        ('[auth]\nmethods = ["jwt"]\n' + JWT + 'default_tenant = "no name"\n', "auth.jwt.default_tenant"),
        ('[auth]\nmethods = ["jwt"]\n' + JWT + 'roles = { staff = "king" }\n', "auth.jwt.roles"),
    ],
)
def test_a_wrong_setting_is_named(text: str, problem: str) -> None:
    """With its key; nothing that looks protected is silently off."""
    with pytest.raises(ConfigError) as wrong:
        load(text)
    assert problem in str(wrong.value)


def test_certificates_and_tokens_stand_beside_each_other() -> None:
    """Clients of gRPC present the ones, and those of the web listener the others."""
    web = '[web]\nlisten = "127.0.0.1:1"\n[auth]\nmethods = ["mtls", "token"]\n[auth.mtls]\n'
    assert load(web + TLS + 'client_ca = "c"\n').web.listen == "127.0.0.1:1"


@pytest.mark.parametrize("listen", ["0.0.0.0:1", "[::]:1", "192.0.2.1:1", "turnwire.example:1", "[::ffff:10.0.0.1]:1"])
@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("", "tls.cert and tls.key and auth.methods"),
        (TLS, "auth.methods"),
        ('[auth]\nmethods = ["token"]\n', "tls.cert and tls.key"),
    ],
)
def test_an_open_address_needs_tls_and_authentication(listen: str, text: str, missing: str) -> None:
    """The error names what is missing, and the way out."""
    with pytest.raises(ConfigError) as refused:
        load(text, options={"--listen": listen})
    assert f"so it needs {missing};" in str(refused.value) and "server.insecure = true" in str(refused.value)
    assert load("[server]\ninsecure = true\n" + text, options={"--listen": listen}).server.insecure
    assert load('[auth]\nmethods = ["token"]\n' + TLS, options={"--listen": listen}).server.listen == listen


@pytest.mark.parametrize("listen", ["127.0.0.1:1", "127.8.8.8:1", "localhost:1", "[::1]:1", "unix:/run/turnwire.sock"])
def test_this_machine_alone_needs_nothing(listen: str) -> None:
    """Loopback addresses and Unix sockets."""
    assert not is_open(listen)
    assert load("", options={"--listen": listen}).server.listen == listen
