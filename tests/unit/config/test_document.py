"""The file itself: where it is found, what wins over it, and errors that name the place."""

from pathlib import Path

import pytest

from tests.support.fakes.config_file import load
from turnwire.config.configuration import ConfigError, load_config


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
        (tmp_path / f"{name}.toml").write_text(f'[server]\nlisten = "{name}:1"\ninsecure = true\n')
    environ = {"TURNWIRE_CONFIG": "named.toml"}
    assert load_config(Path("given.toml"), environ).server.listen == "given:1"
    assert load_config(None, environ).server.listen == "named:1"
    assert load_config(None, {}).server.listen == "turnwire:1"


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"TURNWIRE_LISTEN": "x"}, "TURNWIRE_LISTEN: 'x' is neither host:port nor unix:path"),
        ({"TURNWIRE_LOG_FORMAT": "xml"}, "TURNWIRE_LOG_FORMAT: 'xml' is not one of text, json"),
        (
            {"TURNWIRE_DEFAULT_MODEL": "openai/gpt"},
            "TURNWIRE_DEFAULT_MODEL: 'openai/gpt' names no configured provider; configured are: offline; "
            "openai is there when OPENAI_API_KEY is set",
        ),
        ({"TURNWIRE_CONFIG": "no.toml"}, "TURNWIRE_CONFIG: the file no.toml does not exist"),
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


def test_a_file_that_is_nested_too_deeply_is_named() -> None:
    """The parser gives up on it in another way than on what is no TOML."""
    with pytest.raises(ConfigError, match=r"^test\.toml: (is not valid TOML|cannot be read): .*nest"):
        load(f"a = {'[' * 5000}{']' * 5000}")


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("~nobodyxyz/x", "~nobodyxyz names a user who does not exist on this machine"),
        ("n" * 300, "is longer than a path, or a name in it, may be"),
        ("n/" * 3000, "is longer than a path, or a name in it, may be"),
        ("a\\u0000b", "has a zero byte, which no path may have"),
    ],
)
@pytest.mark.parametrize(
    ("section", "key"),
    [
        ('[files]\nroots = ["{}"]', "files.roots[0]"),
        ('[tenants.a]\nroots = ["{}"]', "tenants.a.roots[0]"),
        ('[storage]\npath = "{}"', "storage.path"),
        ('[auth]\nmethods = ["token"]\ntokens = "{}"', "auth.tokens"),
        ('[tls]\ncert = "{}"\nkey = "k"', "tls.cert"),
        ('[mcp.a]\ncommand = "x"\ncwd = "{}"', "mcp.a.cwd"),
    ],
)
def test_a_path_that_no_file_can_have_is_named(section: str, key: str, path: str, problem: str) -> None:
    """It is no reason for a traceback."""
    with pytest.raises(ConfigError) as caught:
        load(section.format(path))
    assert str(caught.value) == f"test.toml: {key}: {problem}"


def test_a_variable_that_names_no_file_at_all_is_named() -> None:
    """No file can have so long a name."""
    with pytest.raises(ConfigError, match=r"^TURNWIRE_CONFIG: n+ cannot be read: "):
        load_config(None, {"TURNWIRE_CONFIG": "n" * 300})


def test_a_folder_that_leads_in_circles_is_named() -> None:
    """The system says why it cannot be read."""
    Path("circle").symlink_to("circle")
    with pytest.raises(ConfigError, match=r"^test\.toml: files\.roots\[0\]: \S+circle cannot be read: "):
        load('[files]\nroots = ["circle"]')


@pytest.mark.parametrize(
    "line", ['api_key = "sk-secret"', 'api_key_env = "sk-secret"', 'base_url = "https://me:sk-secret@host/v1"']
)
def test_a_key_in_the_file_is_refused_and_not_repeated(line: str) -> None:
    """Error messages end up in logs and bug reports."""
    with pytest.raises(ConfigError) as caught:
        load(f'[providers.x]\nkind = "openai_chat"\n{line}\n')
    assert "sk-secret" not in str(caught.value)
