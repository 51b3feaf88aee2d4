"""Tenants in the configuration: their names and their folders."""

from pathlib import Path

import pytest

from tests.support.fakes.config_file import load
from turnwire.config import ConfigError
from turnwire.config.tenants import default_roots
from turnwire.core.settings import QuotaLimits, TenantSettings
from turnwire.domain.money import PicoUsd


def test_roots_of_a_tenant_are_absolute(tmp_path: Path) -> None:
    """They start at the file's folder; left out and empty are not the same."""
    (tmp_path / "shared").mkdir()
    config = load("[tenants.acme]\nroots = ['shared', '..']\n[tenants.none]\nroots = []\n[tenants.default]")
    assert config.tenants == {
        "acme": TenantSettings(roots=(tmp_path / "shared", tmp_path.parent)),
        "none": TenantSettings(roots=()),
        "default": TenantSettings(roots=None),
    }
    assert config.core_settings().tenants == config.tenants


def test_root_that_is_a_link_is_followed_at_the_start(tmp_path: Path) -> None:
    """A later target of the link does not count, in `files.roots` neither. Callers may use its name."""
    (tmp_path / "real").mkdir()
    for name in ("link", "other"):
        (tmp_path / name).symlink_to("real")
    config = load("[files]\nroots = ['link', 'real']\n[tenants.acme]\nroots = ['other']")
    assert config.files.roots == (tmp_path / "real",) * 2
    assert config.tenants["acme"].roots == (tmp_path / "real",)
    names = {tmp_path / "link": tmp_path / "real", tmp_path / "other": tmp_path / "real"}
    assert config.core_settings().written_roots == names


@pytest.mark.parametrize("name", ["a", "0", "A.b_c-9", "x" * 64])
def test_names_that_are_accepted(name: str) -> None:
    """Letters, digits, and three other characters after the first."""
    assert set(load(f'[tenants."{name}"]').tenants) == {name}


@pytest.mark.parametrize("name", ["", ".", "_a", "-", "x" * 65, "a b", "a/b", "\u00e9", "a\\n"])
def test_names_that_are_refused(name: str) -> None:
    """The error names the table."""
    with pytest.raises(ConfigError, match=r"(?s)test.toml: tenants\..* is not a name of at most 64 letters"):
        load(f'[tenants."{name}"]')


@pytest.mark.parametrize(
    "listen", ["127.0.0.1:1", "127.8.8.8:1", "localhost:1", "[::1]:1", "unix:t.sock", "unix:///run/t.sock"]
)
def test_local_server_has_its_folder_for_a_root(listen: str, tmp_path: Path) -> None:
    """Where it is started, with links resolved; not when it identifies callers."""
    assert default_roots(listen, identifies_callers=False) == (tmp_path.resolve(),)
    assert default_roots(listen, identifies_callers=True) == ()


@pytest.mark.parametrize("listen", ["0.0.0.0:1", "[::]:1", "192.168.1.1:1", "example.com:1", "[2001:db8::1]:1"])
def test_open_server_has_no_root(listen: str) -> None:
    """Other machines would read the folder."""
    assert default_roots(listen, identifies_callers=False) == ()


def test_server_that_starts_in_the_root_folder_has_no_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be the whole disk; services start there."""
    monkeypatch.chdir("/")
    assert default_roots("127.0.0.1:1", identifies_callers=False) == ()


def test_roots_of_a_tenant_come_before_those_of_all(tmp_path: Path) -> None:
    """Its own, an empty list of its own too, then `files.roots`, then the default."""
    for name in ("shared", "own"):
        (tmp_path / name).mkdir()
    tenants = "[tenants.acme]\nroots = ['own']\n[tenants.none]\nroots = []\n[tenants.other]\n"
    settings = load(tenants).core_settings()
    assert [settings.roots(name) for name in ("acme", "none", "other", "default")] == [
        (tmp_path / "own",),
        (),
        (tmp_path,),
        (tmp_path,),
    ]
    settings = load("[files]\nroots = ['shared']\n" + tenants).core_settings()
    assert [settings.roots(name) for name in ("acme", "none", "other")] == [
        (tmp_path / "own",),
        (),
        (tmp_path / "shared",),
    ]


def test_quotas_of_a_tenant_count_instead_of_those_of_all() -> None:
    """Key by key; 0 lifts a limit. Money is exact, far below a cent."""
    settings = load(
        """
[quotas]
max_sessions = 10
max_watchers = 5
max_cost_usd_per_day = "0.000000000001"
[tenants.acme.quotas]
max_sessions = 0
max_cost_usd_per_day = "1234.000000000001"
[tenants.other]
"""
    ).core_settings()
    everybody = QuotaLimits(max_sessions=10, max_watchers=5, max_cost_pico_usd_per_day=PicoUsd(1))
    assert settings.quotas_of("unknown") == settings.quotas_of("other") == everybody
    acme = QuotaLimits(max_sessions=0, max_cost_pico_usd_per_day=PicoUsd(1_234_000_000_000_001))
    assert settings.quotas_of("acme") == acme.over(everybody)


@pytest.mark.parametrize(
    ("toml", "problem"),
    [
        ("[quotas]\nmax_sessions = -1", "quotas.max_sessions"),
        ("[quotas]\nmax_stored_bytes = 9007199254740992", "quotas.max_stored_bytes"),
        ("[tenants.acme.quotas]\nmax_cost_usd_per_day = '0.0000000000001'", "tenants.acme.quotas.max_cost_usd_per_day"),
        ("[tenants.acme.quotas]\nmax_money = 1", "tenants.acme.quotas.max_money: is not a known key"),
    ],
)
def test_wrong_quotas_are_named(toml: str, problem: str) -> None:
    """With the whole path of the key."""
    with pytest.raises(ConfigError, match=problem):
        load(toml)
