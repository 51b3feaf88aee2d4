"""The Swift client: what can be checked without Swift, and its own tests where Swift is installed.

Building it downloads packages, so its own tests run only with TURNWIRE_TEST_SWIFT=1.
"""

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.json_format import ParseDict

from opencode.event.event_pb2 import WatchEventsResponse
from opencode.event.session_event_pb2 import SessionEvent
from opencode.message.content_pb2 import PART_STATUS_STREAMING, Part, SessionMessage
from tests.support.servers.authority import Authority
from tests.support.servers.serving import serving

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "clients/swift"
VECTORS = sorted((ROOT / "clients/vectors").glob("*.json"))
STUBS = PACKAGE / "Sources/TurnwireContract"
TEXTS = ("text", "reasoning", "refusal")
"""The contents of parts whose text grows; that of a tool call is its arguments."""
UNCHANGING = {"context_compacted", "caught_up", "heartbeat"}
"""Kinds that change nothing of what a client holds."""


def folded_kinds() -> set[str]:
    """Returns the kinds of events, as the contract writes them, that the Swift source folds."""
    source = (PACKAGE / "Sources/Turnwire/Conversation/Conversation.swift").read_text()
    fold = source[source.index("public mutating func apply(_ event:") : source.index("private mutating func replace")]
    kinds = re.findall(r"case \.(\w+)(?:\(let \w+\))?\?", fold)
    assert len(kinds) == len(set(kinds))
    return {re.sub(r"([A-Z])", lambda match: f"_{match[1].lower()}", kind) for kind in kinds}


def test_swift_folds_every_kind() -> None:
    """The source names each kind of event that changes something, once, and no other word."""
    known = {field.name for field in SessionEvent.DESCRIPTOR.oneofs_by_name["kind"].fields}
    assert folded_kinds() == known - UNCHANGING


class Texts:
    """What a reader holds of the texts who knows some kinds of events alone."""

    def __init__(self, kinds: set[str]) -> None:
        """Args: kinds: What it knows; it skips all others."""
        self.kinds = kinds
        self.held: dict[str, dict[int, tuple[bytes, bool]]] = {}
        """Message id -> index of a part -> its bytes, and whether it has ended."""
        self.sequence = 0

    def whole(self, message: SessionMessage) -> None:
        """Takes a message with all its parts."""
        self.held[message.message_id] = {}
        for part in message.parts:
            self.part(message.message_id, part)

    def part(self, message_id: str, part: Part) -> None:
        """Takes a whole part."""
        if message_id in self.held:
            self.held[message_id][part.index] = (text_of(part).encode(), part.status != PART_STATUS_STREAMING)

    def apply(self, event: SessionEvent) -> None:
        """Takes in one event."""
        kind = event.WhichOneof("kind")
        if event.sequence and event.sequence <= self.sequence:
            return
        self.sequence = event.sequence or self.sequence
        if kind not in self.kinds:
            return
        if kind == "part_delta":
            self.delta(event)
        elif kind == "part_started" and event.part_started.part.index not in self.held.get(
            event.part_started.message_id, {}
        ):
            self.part(event.part_started.message_id, event.part_started.part)
        elif kind == "part_finished":
            self.part(event.part_finished.message_id, event.part_finished.part)
        elif kind == "message_added" and event.message_added.message.message_id not in self.held:
            self.whole(event.message_added.message)
        elif kind == "message_snapshot":
            self.whole(event.message_snapshot.message)
        elif kind == "message_replaced" and event.message_replaced.message.message_id in self.held:
            self.whole(event.message_replaced.message)
        elif kind == "message_finished" and event.message_finished.message.message_id in self.held:
            parts = self.held[event.message_finished.message.message_id]
            for index in [index for index, (_, ended) in parts.items() if not ended]:
                del parts[index]

    def delta(self, event: SessionEvent) -> None:
        """Takes a piece of text by its offsets."""
        delta = event.part_delta
        held, ended = self.held.get(delta.message_id, {}).get(delta.part_index, (None, False))
        if held is not None and delta.offset <= len(held) < delta.end_offset:
            grown = held + delta.text.encode()[len(held) - delta.offset :]
            self.held[delta.message_id][delta.part_index] = (grown, ended)

    def texts(self, message_id: str) -> list[bytes]:
        """Returns the bytes of the parts of a message, in order."""
        return [text for _, (text, _) in sorted(self.held.get(message_id, {}).items())]


def text_of(part: Part) -> str:
    """Returns the text that grows; "" for content that has none."""
    content = part.WhichOneof("content")
    if content == "tool_use":
        return part.tool_use.input_json
    return getattr(part, content).text if content in TEXTS else ""


@pytest.mark.parametrize("vector", VECTORS, ids=lambda path: path.stem)
def test_the_kinds_that_swift_folds_lose_no_byte(vector: Path) -> None:
    """A reader of those kinds alone holds every byte of the texts that the server has stored."""
    fields = json.loads(vector.read_text())
    if fields["want"]["needs_reread"] or fields["want"]["deleted"]:
        return
    reader = Texts(folded_kinds())
    start = parsed(fields["start"]["messages"]) if "start" in fields else []
    for message in start:
        reader.whole(message)
    reader.sequence = int(fields.get("start", {}).get("sequence", 0))
    for batch in fields["batches"]:
        for event in WatchEventsResponse.FromString(base64.b64decode(batch)).events:
            reader.apply(event)
    for message in parsed(fields["want"]["messages"]):
        assert reader.texts(message.message_id) == [text_of(part).encode() for part in message.parts]


def parsed(messages: list[object]) -> list[SessionMessage]:
    """Returns messages that are written in ProtoJSON."""
    return [ParseDict(message, SessionMessage()) for message in messages]


def test_swift_stubs_are_those_of_the_contract() -> None:
    """They were generated from the files of proto/ as they are now: make generate-clients writes them anew."""
    files = sorted((ROOT / "proto").rglob("*.proto"))
    lines = [
        f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.relative_to(ROOT / 'proto').as_posix()}"
        for file in files
    ]
    assert (STUBS / "contract.sha256").read_text().splitlines() == lines
    for file in files:
        path = STUBS / file.relative_to(ROOT / "proto")
        assert path.with_suffix(".pb.swift").is_file()
        services = re.findall(r"^service (\w+)", file.read_text(), re.MULTILINE)
        methods = re.findall(r"^  rpc (\w+)", file.read_text(), re.MULTILINE)
        written = path.with_suffix(".grpc.swift").read_text()
        assert [name for name in (*services, *methods) if name not in written] == []


def test_swift_names_what_the_stubs_have() -> None:
    """Every type of the contract that the client, its examples and its tests name is one of the stubs."""
    stubs = "".join(file.read_text() for file in STUBS.rglob("*.swift"))
    known = set(re.findall(r"^public (?:struct|enum) (Opencode_\w+)", stubs, re.MULTILINE))
    sources = [file for file in PACKAGE.rglob("*.swift") if not {".build", STUBS.name} & set(file.parts)]
    used = {name for file in sources for name in re.findall(r"\bOpencode_\w+", file.read_text())}
    assert used
    assert used <= known


@pytest.mark.skipif(
    not all(map(shutil.which, ("buf", "protoc-gen-swift", "protoc-gen-grpc-swift-2"))),
    reason="not installed: buf, protoc-gen-swift, protoc-gen-grpc-swift-2",
)
def test_swift_stubs_are_fresh(tmp_path: Path) -> None:
    """Generating them again gives the same files."""
    shutil.copytree(ROOT / "proto", tmp_path / "proto")
    shutil.copy(ROOT / "buf.yaml", tmp_path)
    copy = tmp_path / "clients/swift"
    copy.mkdir(parents=True)
    for name in ("generate.sh", "buf.gen.yaml"):
        shutil.copy(PACKAGE / name, copy)
    subprocess.run([copy / "generate.sh"], check=True, timeout=120)
    assert contents(copy / "Sources/TurnwireContract") == contents(STUBS)


def contents(folder: Path) -> dict[str, bytes]:
    """Returns the files below a folder."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """The address of a server whose calls of `erase` ask a person."""
    with serving(tmp_path, '[permissions]\n"erase" = "ask"\n') as address:
        yield address


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[dict[str, str]]:
    """What names a server with TLS that asks for a token."""
    folder = tmp_path / "secured"
    folder.mkdir()
    authority = Authority("Swift tests")
    authority.issue("server").write(folder, "server")
    roots = folder / "roots.pem"
    roots.write_bytes(authority.pem)
    create = [sys.executable, "-m", "turnwire", "token", "create", "--subject", "swift", "--role", "writer"]
    made = subprocess.run(create, cwd=folder, check=True, capture_output=True, text=True, timeout=60)
    config = '[tls]\ncert = "server.pem"\nkey = "server.key"\n[auth]\nmethods = ["token"]\n'
    with serving(folder, config) as address:
        yield {
            "TURNWIRE_SECURE_ADDRESS": address,
            "TURNWIRE_SECURE_ROOTS": str(roots),
            "TURNWIRE_SECURE_TOKEN": made.stdout.strip(),
        }


@pytest.mark.skipif(os.environ.get("TURNWIRE_TEST_SWIFT") != "1", reason="downloads packages: TURNWIRE_TEST_SWIFT=1")
@pytest.mark.skipif(shutil.which("swift") is None, reason="not installed: swift")
@pytest.mark.timeout(3600)
def test_swift_client(served: str, secured: dict[str, str]) -> None:
    """Its own tests pass: the fold vectors, and everything against real servers."""
    done = subprocess.run(
        ["swift", "test"],
        cwd=PACKAGE,
        env={**os.environ, **secured, "TURNWIRE_ADDRESS": served},
        check=False,
        capture_output=True,
        text=True,
        timeout=3600,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
