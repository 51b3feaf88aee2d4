"""What the documents say works: commands, examples, links, numbers.

The Go examples download modules, so they run only with TURNWIRE_TEST_GO=1; the commands of the README need grpcurl.
"""

import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, json_format
from google.protobuf.descriptor import Descriptor, MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

from turnwire.domain import errors

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
ADDRESS = "127.0.0.1:50051"
ENDLESS = {"WatchEvents": "caught_up", "SubscribeGlobalEvents": "message_part_updated"}
"""Methods whose stream has no end, and what shows that it works."""
QUESTION = 'Ask me.\n/tool ask_user {"question": "What is your name?"}'
"""Makes the offline model call the tool of the examples."""
ANSWERED = "Ask me.\nWhat is your name? ask_user returned: Ada\n"
"""What an example then prints, apart from what is typed."""


def blocks(text: str, language: str) -> list[str]:
    """Returns the code blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


COMMANDS = [line for block in blocks(README, "sh") for line in block.splitlines() if "grpcurl " in line]
CALLS = [line for line in COMMANDS if re.search(r" [\w.]+Service/\w+", line)]


def fixed_messages() -> set[str]:
    """Returns the full names of the messages of the fixed contract."""
    image = descriptor_pb2.FileDescriptorSet.FromString((ROOT / "tests/contract/fixed_contract.binpb").read_bytes())
    return {f"{file.package}.{message.name}" for file in image.file for message in file.message_type}


def modules() -> Iterator[object]:
    """Returns the generated module of each file of the contract."""
    for path in sorted((ROOT / "proto/opencode").rglob("*.proto")):
        name = path.relative_to(ROOT / "proto").with_suffix("").as_posix().replace("/", ".")
        yield importlib.import_module(f"{name}_pb2")


def messages() -> Iterator[Descriptor]:
    """Returns every message of the contract."""
    for module in modules():
        yield from module.DESCRIPTOR.message_types_by_name.values()


def method(name: str) -> MethodDescriptor:
    """Returns the method of a full name such as `opencode.message.MessageService/GetMessages`."""
    service_name, _, method_name = name.partition("/")
    for module in modules():
        for service in module.DESCRIPTOR.services_by_name.values():
            if service.full_name == service_name:
                return service.methods_by_name[method_name]
    raise KeyError(service_name)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """The address of a fresh `turnwire serve` without configuration."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TURNWIRE_")}
    command = [sys.executable, "-m", "turnwire", "serve", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, cwd=tmp_path, env=environ, stderr=subprocess.PIPE, text=True)
    assert process.stderr
    try:
        line = process.stderr.readline()
        assert line.startswith("listening on "), line
        yield line.removeprefix("listening on ").strip()
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=10)


@pytest.mark.parametrize("command", CALLS)
def test_readme_calls_exist_and_take_their_json(command: str) -> None:
    """Every grpcurl line names a method, and its JSON is a request of that method."""
    name = re.search(r" ([\w.]+Service/\w+)", command)
    assert name
    request = GetMessageClass(method(name[1]).input_type)()
    if data := re.search(r"-d '(\{.*\})' ", command):
        json_format.ParseDict(json.loads(re.sub(r"'\$[A-Z]+'", "an_id", data[1])), request)
        assert request.ByteSize()


def test_readme_shows_the_calls_that_matter() -> None:
    """The walk covers what a newcomer does first."""
    shown = {re.search(r"/(\w+)", call.split("Service", 1)[1])[1] for call in CALLS}  # type: ignore[index]
    assert shown >= {
        "CreateSession", "SendMessage", "StreamMessage", "WatchEvents", "AbortSession", "ListSessions", "GetSession",
        "ListMessages", "GetMessages", "SubscribeGlobalEvents", "SubmitToolResult", "ListTools",
    }  # fmt: skip


@pytest.mark.skipif(shutil.which("grpcurl") is None, reason="grpcurl is not installed")
def test_readme_commands_work_as_printed(served: str) -> None:
    """The lines run one after the other in one shell against a fresh server; only the port differs."""
    environ = dict(os.environ)
    for command in COMMANDS:
        assert ADDRESS in command, command
        script = command.replace(ADDRESS, served)
        endless = next((word for name, word in ENDLESS.items() if f"/{name}" in command), None)
        if endless:
            until_seen(script, environ, endless)
            continue
        if variable := re.match(r"([A-Z]+)=", command):
            environ[variable[1]] = value_of(variable[1], script, environ)
            continue
        done = in_shell(script, environ)
        assert (done.returncode, done.stderr) == (0, ""), f"{command}\n{done.stderr}"
        assert done.stdout.strip()


def in_shell(script: str, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs a line as a reader does."""
    return subprocess.run(
        ["bash", "-euc", script], env=environ, check=False, capture_output=True, text=True, timeout=30
    )


def value_of(variable: str, script: str, environ: dict[str, str]) -> str:
    """Returns the id that a line puts into a variable; runs it until there is one: the test is faster than a reader."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        done = in_shell(f'{script}\necho "${variable}"', environ)
        assert (done.returncode, done.stderr) == (0, ""), f"{script}\n{done.stderr}"
        if value := done.stdout.strip():
            assert re.fullmatch(r"(ses|prt)_\w+", value), value
            return value
    raise AssertionError(f"{script} finds nothing")


def until_seen(script: str, environ: dict[str, str], word: str) -> None:
    """Runs a command until its output holds the word, then interrupts it as Ctrl-C does."""
    process = subprocess.Popen(["bash", "-euc", f"exec {script}"], env=environ, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        assert any(word in line for line in process.stdout), f"{script} ended without {word}"
    finally:
        process.send_signal(signal.SIGINT)
        process.stdout.close()
        process.wait(timeout=10)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    """Every relative link of a document names a file."""
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", document.read_text())
    missing = [link for link in links if "://" not in link and not (document.parent / link).exists()]
    assert missing == []


def test_next_free_numbers_are_true() -> None:
    """docs/contract.md gives the next free field number of every message."""
    rows = re.findall(r"^\| `(opencode\.\w+)` \| (.*) \|$", (ROOT / "docs/contract.md").read_text(), re.MULTILINE)
    written = {
        f"{package}.{name}": int(number) for package, row in rows for name, number in re.findall(r"`(\w+)` (\d+)", row)
    }
    fixed = fixed_messages()
    assert written == {message.full_name: next_free(message, fixed) for message in messages()}


def next_free(message: Descriptor, fixed: set[str]) -> int:
    """Returns the number after the highest, for a fixed message at least 16, for a durable kind below 32."""
    last = 15 if message.full_name in fixed else 0
    proto = descriptor_pb2.DescriptorProto()
    message.CopyToProto(proto)
    numbers = [field.number for field in proto.field] + [gap.end - 1 for gap in proto.reserved_range]
    if message.full_name == "opencode.event.SessionEvent":
        numbers = [number for number in numbers if number < 32]
    return max([last, *numbers]) + 1


def test_event_numbers_from_32_on_are_as_written() -> None:
    """docs/contract.md gives the next free number of the kinds that are not durable."""
    event = next(message for message in messages() if message.full_name == "opencode.event.SessionEvent")
    written = re.search(r"kinds that are not durable at (\d+)", (ROOT / "docs/contract.md").read_text())
    assert written
    assert int(written[1]) == max(field.number for field in event.fields) + 1


def test_every_reason_is_documented() -> None:
    """docs/contract.md names the reason of every error that a caller may get."""
    kinds = [
        value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, errors.DomainError)
    ]
    # these cannot be met: one stops the start, one is only a base
    reasons = {kind.reason for kind in kinds} - {"STORAGE_SCHEMA_TOO_NEW", "PROVIDER_ERROR"}
    text = (ROOT / "docs/contract.md").read_text()
    assert [reason for reason in sorted(reasons) if f"`{reason}`" not in text] == []


def stripped(text: str) -> str:
    """Returns a text without its indentation."""
    return "\n".join(line.strip() for line in text.strip().splitlines())


@pytest.mark.parametrize(
    ("language", "files"),
    [
        ("python", ["examples/python/client.py", "examples/python/client_tool.py"]),
        ("go", ["examples/go/main.go", "examples/go/clienttool/main.go"]),
    ],
)
def test_readme_shows_the_examples(language: str, files: list[str]) -> None:
    """What the README prints of an example stands in its file, whatever the indentation."""
    for block, file in zip(blocks(README, language), files, strict=True):
        assert stripped(block) in stripped((ROOT / file).read_text()), file


def test_python_example_prints_the_answer(served: str) -> None:
    """It prints every character once, and says why a turn failed."""
    example = [sys.executable, str(ROOT / "examples/python/client.py")]
    done = subprocess.run(
        [*example, "/rate 100\néén twee 世界 🌍", served], check=False, capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "één twee 世界 🌍\n", "")
    failed = subprocess.run(
        [*example, "/error unavailable", served], check=False, capture_output=True, text=True, timeout=30
    )
    assert failed.returncode == 1
    assert failed.stderr.startswith("PROVIDER_UNAVAILABLE: ")


def test_python_client_tool_answers_the_model(served: str) -> None:
    """The question of the call is asked once, and the model gets what was typed; it says why a turn failed."""
    example = [sys.executable, str(ROOT / "examples/python/client_tool.py")]
    done = in_terminal([*example, QUESTION, served])
    assert (done.returncode, done.stdout, done.stderr) == (0, ANSWERED, "")
    failed = in_terminal([*example, "/error unavailable", served])
    assert failed.returncode == 1
    assert failed.stderr.startswith("PROVIDER_UNAVAILABLE: ")


def in_terminal(
    command: list[str], folder: Path = ROOT, timeout_seconds: float = 30
) -> subprocess.CompletedProcess[str]:
    """Runs a client whose user types a line."""
    return subprocess.run(
        command, cwd=folder, input="Ada\n", check=False, capture_output=True, text=True, timeout=timeout_seconds
    )


@pytest.mark.timeout(600)
@pytest.mark.skipif(os.environ.get("TURNWIRE_TEST_GO") != "1", reason="needs module downloads: TURNWIRE_TEST_GO=1")
@pytest.mark.skipif(shutil.which("go") is None, reason="go is not installed")
def test_go_examples_build_and_run(served: str, tmp_path: Path) -> None:
    """Stubs are generated from the contract as the README says, and the clients do what those in Python do."""
    folder = tmp_path / "examples/go"
    shutil.copytree(ROOT / "examples/go", folder, ignore=shutil.ignore_patterns("opencode"))
    shutil.copytree(ROOT / "proto", tmp_path / "proto")
    shutil.copy(ROOT / "buf.yaml", tmp_path)
    buf = str(Path(sys.executable).with_name("buf"))
    subprocess.run([buf, "generate", "../..", "--template", "buf.gen.yaml"], cwd=folder, check=True, timeout=300)
    done = in_terminal(["go", "run", ".", "/rate 100\néén twee 世界 🌍", served], folder, 300)
    assert (done.returncode, done.stdout) == (0, "één twee 世界 🌍\n"), done.stderr
    done = in_terminal(["go", "run", "./clienttool", QUESTION, served], folder, 300)
    assert (done.returncode, done.stdout) == (0, ANSWERED), done.stderr
