"""Which keys of a configuration take effect when it is read again."""

from pathlib import Path

import msgspec

from tests.support.fakes.config_file import load
from turnwire.config.configuration import Config
from turnwire.config.reload import _SECTIONS, _TAKEN, reloaded


def test_every_field_takes_effect_or_needs_a_restart() -> None:
    """None is forgotten, so that a new section has to be decided about."""
    fields = {field.name for field in msgspec.structs.fields(Config)}
    assert fields == {*_TAKEN, *_SECTIONS, "default_roots"}


def test_what_is_the_same_changes_nothing() -> None:
    """The configuration stays as it was."""
    config = load("[quotas]\nmax_sessions = 1")
    found = reloaded(config, load("[quotas]\nmax_sessions = 1"))
    assert (found.config, found.changed, found.needs_restart) == (config, (), ())


def test_some_keys_take_effect_and_others_wait(tmp_path: Path) -> None:
    """Those that wait keep what they were; of `files` the roots alone take effect."""
    (tmp_path / "one").mkdir()
    old = load("")
    new = load(
        "[files]\nroots = ['one']\nmax_bytes = 5\n[limits]\nmax_steps = 7\n[log]\nlevel = 'error'\n"
        "[permissions]\n'*' = 'deny'\n[mcp.a]\ncommand = 'x'\n[retries]\nmax_retries = 1"
    )
    found = reloaded(old, new)
    assert found.changed == ("files.roots", "permissions", "retries")
    assert found.needs_restart == ("log.level", "limits.max_steps", "files.max_bytes", "mcp.a")
    assert found.config.files == msgspec.structs.replace(old.files, roots=(tmp_path / "one",))
    assert (found.config.limits, found.config.mcp) == (old.limits, old.mcp)
    assert (found.config.permissions, found.config.retries) == (new.permissions, new.retries)
