"""Tenants in the configuration: their names and their folders."""

from pathlib import Path

import pytest

from tests.support.fakes.config_file import load
from turnwire.config import ConfigError
from turnwire.core.settings import TenantSettings


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
    """What the link leads to later does not count, in `files.roots` neither."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    config = load("[files]\nroots = ['link']\n[tenants.acme]\nroots = ['link']")
    assert config.files.roots == (tmp_path / "real",)
    assert config.tenants["acme"].roots == (tmp_path / "real",)


@pytest.mark.parametrize("name", ["a", "0", "A.b_c-9", "x" * 64])
def test_names_that_are_accepted(name: str) -> None:
    """Letters, digits, and three other characters after the first."""
    assert set(load(f'[tenants."{name}"]').tenants) == {name}


@pytest.mark.parametrize("name", ["", ".", "_a", "-", "x" * 65, "a b", "a/b", "\u00e9", "a\\n"])
def test_names_that_are_refused(name: str) -> None:
    """The error names the table."""
    with pytest.raises(ConfigError, match=r"(?s)test.toml: tenants\..* is not a name of at most 64 letters"):
        load(f'[tenants."{name}"]')
