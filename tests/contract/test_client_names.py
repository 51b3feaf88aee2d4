"""The table of names in docs/guides/clients.md is what the clients export: no name of it is missing, and no method."""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

import turnwire_client
from opencode.message.content_pb2 import Part, ReasoningContent, RefusalContent, SessionMessage, TextContent

ROOT = Path(__file__).parents[2]
LANGUAGES = ("Python", "Go", "TypeScript", "Swift")


def table() -> dict[str, set[str]]:
    """The names of each language, such as `Client.send`."""
    section = (ROOT / "docs/guides/clients.md").read_text().split("\n## Names\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    assert [cell.strip() for cell in rows[0][1:]] == list(LANGUAGES)
    cells = {language: [row[at] for row in rows[2:]] for at, language in enumerate(LANGUAGES, start=1)}
    return {language: set(re.findall(r"`([^`]+)`", "|".join(of_language))) for language, of_language in cells.items()}


def sources(folder: str, suffix: str) -> str:
    """The sources of a client, without its tests and stubs."""
    files = sorted((ROOT / "clients" / folder).rglob(f"*{suffix}"))
    left_out = ("_test.go", ".test.ts")
    kept = [file for file in files if not file.name.endswith(left_out) and "node_modules" not in file.parts]
    return "\n".join(file.read_text() for file in kept if "opencode" not in file.parts and "cmd" not in file.parts)


def methods(names: Iterable[str]) -> set[str]:
    """The names of methods of a client."""
    return {f"Client.{name}" for name in names}


def exported_by_python() -> tuple[set[str], set[str]]:
    """Names of the package and of what its blocking client has, and methods of its client."""
    of_client = methods(name for name in vars(turnwire_client.Client) if not name.startswith("_") and name != "open")
    return set(turnwire_client.__all__) | methods(vars(turnwire_client.BlockingClient)), of_client


def exported_by_go() -> tuple[set[str], set[str]]:
    """Functions and types, and methods of the client."""
    text = sources("go", ".go")
    return (
        set(re.findall(r"^(?:func|type) ([A-Z]\w*)", text, re.MULTILINE)),
        methods(re.findall(r"^func \(c \*Client\) ([A-Z]\w*)", text, re.MULTILINE)),
    )


def exported_by_typescript() -> tuple[set[str], set[str]]:
    """What the package exports, and methods of its client."""
    folder = ROOT / "clients/typescript/src"
    exports = re.findall(r"^export (?:type )?\{(.*?)\}", (folder / "exports.ts").read_text(), re.MULTILINE)
    names = {name.removeprefix("type ").strip() for line in exports for name in line.split(",")}
    names |= set(re.findall(r"^export function (\w+)", (folder / "index.ts").read_text(), re.MULTILINE))
    of_class = (folder / "client.ts").read_text().split("\nexport class Client ")[1]
    return names, methods(re.findall(r"^  (?:async )?\*?(?!constructor)([a-z]\w*)[(<]", of_class, re.MULTILINE))


def exported_by_swift() -> tuple[set[str], set[str]]:
    """Types and properties of messages, and methods of the client."""
    text = sources("swift/Sources/Turnwire", ".swift")
    message = (ROOT / "clients/swift/Sources/Turnwire/Conversation/Message.swift").read_text()
    names = set(re.findall(r"public (?:final )?(?:struct|class|enum) (\w+)", text))
    names |= {f"Message.{name}" for name in re.findall(r"public var (\w+)", message)}
    bodies = re.findall(r"^(?:extension Client|public final class Client)\b.*?^\}", text, re.DOTALL | re.MULTILINE)
    return names, methods(re.findall(r"^    public (?:static )?func (\w+)", "\n".join(bodies), re.MULTILINE))


EXPORTED = {
    "Python": exported_by_python,
    "Go": exported_by_go,
    "TypeScript": exported_by_typescript,
    "Swift": exported_by_swift,
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_table_of_names_is_what_the_client_exports(language: str) -> None:
    """Each name of the table is there, and each method of the client is in the table."""
    names, of_client = EXPORTED[language]()
    listed = table()[language]
    assert len(of_client) > 5
    assert listed - names - of_client == set()
    assert of_client - listed == set()


def test_text_of_joins_the_text_parts() -> None:
    """And leaves out everything else."""
    parts = [
        Part(reasoning=ReasoningContent(text="Hm.")),
        Part(text=TextContent(text="één ")),
        Part(refusal=RefusalContent(text="no")),
        Part(text=TextContent(text="世界")),
    ]
    assert turnwire_client.text_of(SessionMessage(parts=parts)) == "één 世界"
    assert turnwire_client.text_of(SessionMessage()) == ""
