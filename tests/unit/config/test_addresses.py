"""The address of the metrics: off, or one that only this machine reaches, unless somebody says otherwise."""

from pathlib import Path

import pytest

from turnwire.config import ConfigError, load_config
from turnwire.config.addresses import host_and_port


def _load(folder: Path, text: str):  # type: ignore[no-untyped-def]
    file = folder / "turnwire.toml"
    file.write_text(text)
    return load_config(file, {}).metrics


def test_there_are_no_metrics_by_default(tmp_path: Path) -> None:
    """Whoever wants them names an address."""
    assert _load(tmp_path, "").listen == ""


@pytest.mark.parametrize("listen", ["127.0.0.1:9464", "127.8.8.8:0", "localhost:9464", "[::1]:9464"])
def test_an_address_of_this_machine_needs_nothing_more(tmp_path: Path, listen: str) -> None:
    """Metrics have no authentication."""
    assert _load(tmp_path, f'[metrics]\nlisten = "{listen}"').listen == listen


@pytest.mark.parametrize("listen", ["0.0.0.0:9464", "[::]:9464", "192.0.2.1:9464", "metrics.example:9464"])
def test_an_open_address_is_refused_unless_it_is_meant(tmp_path: Path, listen: str) -> None:
    """The error says what to do."""
    with pytest.raises(ConfigError, match=r"metrics\.listen: other machines can reach .* metrics\.insecure = true"):
        _load(tmp_path, f'[metrics]\nlisten = "{listen}"')
    assert _load(tmp_path, f'[metrics]\nlisten = "{listen}"\ninsecure = true').listen == listen


@pytest.mark.parametrize("listen", ["9464", "127.0.0.1", "127.0.0.1:99999", "unix:/m.sock", "a b:1", "::1:9464"])
def test_what_is_no_address_is_refused(tmp_path: Path, listen: str) -> None:
    """Prometheus reads no Unix sockets."""
    with pytest.raises(ConfigError, match=r"metrics\.listen: .* is not host:port"):
        _load(tmp_path, f'[metrics]\nlisten = "{listen}"\ninsecure = true')


def test_the_parts_of_an_address() -> None:
    """Brackets are not a part of the host."""
    assert (host_and_port("[::1]:9464"), host_and_port("localhost:0")) == (("::1", 9464), ("localhost", 0))


@pytest.mark.parametrize("host", ["https://turnwire.example", "turnwire.example:8080", "a b", "", "*.example"])
def test_a_name_of_the_web_listener_is_a_name(tmp_path: Path, host: str) -> None:
    """Without a scheme and a port, so that none is added that never matches."""
    with pytest.raises(ConfigError, match=r"web\.allowed_hosts\[1\]: .* is not a name, such as turnwire\.example"):
        _load(tmp_path, f'[web]\nallowed_hosts = ["*", "{host}"]')


@pytest.mark.parametrize(
    "address", ["http://[", "http://]", "http://[::1", "http://a:b", "http://a:99999", "http://:80"]
)
def test_an_address_without_a_host_is_refused(tmp_path: Path, address: str) -> None:
    """And not first by the start, or by the first call."""
    secure = address.replace("http", "https")
    jwt = f'[auth]\nmethods = ["jwt"]\n[auth.jwt]\nissuer = "i"\naudience = "a"\nkeys = "{secure}"'
    for text, key in (
        (f'[web]\nallowed_origins = ["{address}"]', "web.allowed_origins[0]"),
        (f'[providers.x]\nkind = "openai_chat"\nbase_url = "{address}/v1"', "providers.x.base_url"),
        (f'[mcp.x]\nurl = "{address}/mcp"', "mcp.x.url"),
        (f'[tracing]\nendpoint = "{address}"', "tracing.endpoint"),
        (jwt, "auth.jwt.keys"),
    ):
        with pytest.raises(ConfigError) as caught:
            _load(tmp_path, text)
        assert caught.value.key == key


def test_an_address_with_brackets_is_taken(tmp_path: Path) -> None:
    """They hold an IPv6 address; other schemes have hosts too."""
    _load(tmp_path, '[web]\nallowed_origins = ["*", "http://[::1]:8080", "tauri://localhost"]')
    _load(tmp_path, '[providers.x]\nkind = "openai_chat"\nbase_url = "http://[::1]:8000/v1"')
