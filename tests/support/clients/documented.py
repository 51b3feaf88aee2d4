"""What docs/migrating.md tells the clients of other systems to write, as functions that tests call."""

import re
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

_PAGE = Path(__file__).parents[3] / "docs/migrating.md"


@cache
def documented(section: str) -> Any:
    """Returns the names that the Python of a section defines, as attributes."""
    [body] = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", _PAGE.read_text(), re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", body, re.DOTALL | re.MULTILINE):
        exec(compile(block, f"{_PAGE.name}, {section}", "exec"), names)
    return SimpleNamespace(**names)
