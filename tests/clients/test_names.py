"""The table of names in docs/guides/clients.md has only names of the libraries, and every call of their clients."""

import inspect
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import turnwire_client
from turnwire_client import BlockingClient, Client

ROOT = Path(__file__).parents[2]


def table() -> list[list[set[str]]]:
    """Returns the rows with the names of each language."""
    page = (ROOT / "docs/guides/clients.md").read_text()
    rows = [line.strip("|").split("|") for line in page.splitlines() if re.match(r"\| [a-z]", line)]
    return [[set(re.findall(r"`([\w.]+)`", cell)) for cell in row[1:]] for row in rows]


def python() -> set[str]:
    """Returns the client's public methods and fields, and what its package gives."""
    names = [*vars(Client), *re.findall(r"^ +self\.(\w+) ?[:=]", inspect.getsource(Client), re.MULTILINE)]
    return set(turnwire_client.__all__) | {f"Client.{name}" for name in names if not name.startswith("_")}


def go() -> set[str]:
    """Returns the functions and types of the package."""
    files = [path.read_text() for path in (ROOT / "clients/go").glob("*.go") if not path.name.endswith("_test.go")]
    found = re.findall(r"^(?:func|type) (?:\(c \*(Client)\) )?([A-Z]\w*)", "\n".join(files), re.MULTILINE)
    return {f"{of}.{name}" if of else name for of, name in found}


def typescript() -> set[str]:
    """Returns the client's methods, and what its package exports."""
    source = ROOT / "clients/typescript/src"
    methods = re.findall(r"^  (?:async )?\*?([a-z]\w*)(?:<.*>)?\(", (source / "client.ts").read_text(), re.MULTILINE)
    exports = (source / "exports.ts").read_text() + (source / "index.ts").read_text()
    lists = re.findall(r"^export \{([^}]*)\}", exports, re.MULTILINE)
    functions = re.findall(r"^export function (\w+)", exports, re.MULTILINE)
    calls = {f"Client.{name}" for name in methods if name != "constructor"}
    return calls | set(functions + re.findall(r"\w+", " ".join(lists)))


def swift() -> set[str]:
    """Returns the public types of the library, and their functions and texts."""
    names = set()
    for path in (ROOT / "clients/swift/Sources/Turnwire").rglob("*.swift"):
        owner = ""
        for line in path.read_text().splitlines():
            if declared := re.match(r" *(public |extension )(?:final )?(?:class |struct |enum )?([A-Z]\w*)", line):
                owner = declared[2]
                names.add(owner)
            elif found := re.match(r" *public (?:static )?(?:func (\w+)|var (\w+): String)", line):
                names.add(f"{owner}.{found[1] or found[2]}")
    return names


LANGUAGES: list[Callable[[], set[str]]] = [python, go, typescript, swift]


@pytest.mark.parametrize("language", range(4), ids=[language.__name__ for language in LANGUAGES])
def test_names_are_those_of_the_library(language: int) -> None:
    """A name that is not in the source, and a call of the client that is not in the table, are noticed."""
    listed = set[str]().union(*[row[language] for row in table()])
    there = LANGUAGES[language]()
    assert listed - there == set()
    assert {name for name in there if name.startswith("Client.")} - listed == set()


def test_blocking_client_has_the_calls_of_the_other() -> None:
    """But two, as the page says."""
    blocking = {f"Client.{name}" for name, _ in inspect.getmembers(BlockingClient) if not name.startswith("_")}
    assert {name for name in python() if name.startswith("Client.")} - blocking == {"Client.open", "Client.stream"}
