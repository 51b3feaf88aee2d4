"""Values never change: who holds one may keep it, give it away, and compare it later."""

import importlib
import pkgutil
from collections.abc import Iterator

import msgspec

import turnwire

CHANGING = {
    "turnwire.cli.importing": "counts while it runs",
    "turnwire.identity.web_tokens.verification": "is read in one function and given to nobody",
}
"""The modules whose values may change, and why."""


def _values() -> Iterator[type[msgspec.Struct]]:
    for module in pkgutil.walk_packages(turnwire.__path__, "turnwire."):
        if module.name == "turnwire.__main__" or module.name in CHANGING:
            continue
        for one in vars(importlib.import_module(module.name)).values():
            if isinstance(one, type) and issubclass(one, msgspec.Struct) and one.__module__ == module.name:
                yield one


def test_values_never_change() -> None:
    """Each is frozen."""
    values = list(_values())
    assert len(values) > 200
    assert [f"{one.__module__}.{one.__qualname__}" for one in values if not one.__struct_config__.frozen] == []
