"""What the documents say works: commands, links, numbers. Commands that call grpcurl or curl need them."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, json_format
from google.protobuf.descriptor import Descriptor, MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

from docs.reference.documents import documents
from docs.reference.field_numbers import PLANNED, fixed_messages, messages, modules
from docs.reference.openapi import openapi
from opencode.event.session_event_pb2 import SessionEvent
from tests.support.servers.mcp import own_port
from tests.support.servers.serving import serving
from turnwire.config import load_config

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "examples/deploy/README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
ADDRESS, WEB_ADDRESS = "127.0.0.1:50051", "127.0.0.1:8080"
CURL = f"http://{WEB_ADDRESS}/opencode."
ENDLESS = {"WatchEvents": "caught_up", "SubscribeGlobalEvents": "message_part_updated"}
"""Methods whose stream has no end, and what shows that it works."""


def blocks(text: str, language: str) -> list[str]:
    """Returns the code blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def commands(text: str) -> list[str]:
    """Returns the lines of a document that call methods, with grpcurl or with curl."""
    return [line for block in blocks(text, "sh") for line in block.splitlines() if "grpcurl " in line or CURL in line]


WALKED = (
    "docs/quickstart/curl.md",
    "docs/concepts/tenants-and-quotas.md",
    "docs/guides/files-and-uploads.md",
    "docs/guides/models.md",
    "docs/operate/operations.md",
    "docs/reference/streaming.md",
    "docs/guides/tools.md",
)
"""Documents with commands."""
TEXTS = {name: (ROOT / name).read_text() for name in WALKED}
TOOLS = "docs/guides/tools.md"
CONFIGURATIONS = {TOOLS: next(block for block in blocks(TEXTS[TOOLS], "toml") if "ask" in block)}
"""What a server has when it answers the commands of a document. The others have none."""
CALLS = [line for text in TEXTS.values() for line in commands(text) if re.search(r"[ /][\w.]+Service/\w+", line)]


NAMES_OF_REGISTRIES = re.compile(
    r"(?:pip install|npm install|npm i|go get|uv add)[^\n`]*[ '\"]"
    r"(?:turnwire(?:-client)?(?:\[\w+\])?|@turnwire/\w+|github\.com/turnwire/\S+)['\"`\s]"
)
"""How a command names a package that the registries do not have: whoever registers the name gets the users."""


@pytest.mark.parametrize("folder", ["server/turnwire", "docs", "examples", "clients", "README.md"])
def test_nothing_recommends_a_name_that_nobody_owns(folder: str) -> None:
    """Installing is from a checkout or a release, but for the page about releases."""
    files = [ROOT / folder] if folder == "README.md" else sorted((ROOT / folder).rglob("*"))
    texts = {
        path: path.read_text()
        for path in files
        if path.suffix in {".md", ".py", ".toml", ".ts"} and not {"node_modules", "build", "dist"} & {*path.parts}
    }
    assert texts
    assert [(path, found) for path, text in texts.items() for found in NAMES_OF_REGISTRIES.findall(text)] == []


@pytest.mark.slow
def test_the_readme_of_the_python_client_begins_with_what_works(tmp_path: Path) -> None:
    """In the checkout. What the network would bring is there: the build's packages, and those that the client needs."""
    first = blocks((ROOT / "clients/python/README.md").read_text(), "sh")[0]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    offline = {"PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1"}
    environ = {**os.environ, **offline, "PIP_TARGET": str(tmp_path), "PATH": path}
    done = in_shell(first, environ)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "turnwire_client/__init__.py").is_file()
    assert (tmp_path / "opencode").is_dir()


def method(name: str) -> MethodDescriptor:
    """Returns the method of a full name such as `opencode.message.MessageService/GetMessages`."""
    service_name, _, method_name = name.partition("/")
    for module in modules():
        for service in module.DESCRIPTOR.services_by_name.values():
            if service.full_name == service_name:
                return service.methods_by_name[method_name]
    raise KeyError(service_name)


def test_calls_exist_and_take_their_json() -> None:
    """Every such line names a method, and its JSON is a request of that method."""
    for command in CALLS:
        name = re.search(r"[ /]([\w.]+Service/\w+)", command)
        assert name
        request = GetMessageClass(method(name[1]).input_type)()
        if data := re.search(r"-d '(\{.*\})' ", command):
            values = json.loads(re.sub(r"'\$[A-Z]+'", "an_id", data[1]))
            if mask := values.get("update_mask"):  # an object for grpcurl, text in the JSON form
                values["update_mask"] = ",".join(mask["paths"])
            json_format.ParseDict(values, request)
            assert request.ByteSize()


@pytest.mark.skipif(shutil.which("grpcurl") is None, reason="grpcurl is not installed")
@pytest.mark.parametrize("document", WALKED)
def test_commands_work_as_printed(document: str, tmp_path: Path) -> None:
    """The lines run one after the other in one shell against a fresh server; only the port differs."""
    with own_port() as port:
        web = f"127.0.0.1:{port}"
        configuration = f'{CONFIGURATIONS.get(document, "")}\n[web]\nlisten = "{web}"'
        with serving(tmp_path, configuration) as address:
            run_all([line.replace(WEB_ADDRESS, web) for line in commands(TEXTS[document])], address)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_first_commands_need_curl_alone(tmp_path: Path) -> None:
    """Against a server that has only what `make serve` gives it; the answer that the quickstart promises comes."""
    lines = [line for line in commands(TEXTS["docs/quickstart/curl.md"]) if "grpcurl" not in line]
    with own_port() as port, serving(tmp_path, f'[web]\nlisten = "127.0.0.1:{port}"'):
        create, send, read, abort = (line.replace(WEB_ADDRESS, f"127.0.0.1:{port}") for line in lines)
        environ = dict(os.environ)
        environ["SESSION"] = value_of("SESSION", create, environ)
        assert '"messageId"' in finished(send, environ).stdout
        deadline = time.monotonic() + 20
        while (said := finished(read, environ).stdout).count("Hello") < 2:
            assert time.monotonic() < deadline, said
        assert finished(abort, environ).returncode == 0


def test_configurations_are_read(tmp_path: Path) -> None:
    """The examples of a document are one configuration together, which the server takes."""
    for document in DOCUMENTS:
        file = tmp_path / "turnwire.toml"
        file.write_text("\n".join(blocks(document.read_text(), "toml")))
        load_config(file, {})


def test_every_page_is_in_the_menu_of_the_site() -> None:
    """A page that no list names is not found. Decisions have a list of their own."""
    listed = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert sorted(listed) == sorted(page for page in pages if not re.match(r"decisions/\d", page))


def run_all(lines: list[str], served: str) -> None:
    """Runs commands in their order and expects each to work."""
    environ = dict(os.environ)
    for command in lines:
        assert ADDRESS in command or " -import-path " in command or "curl -sS" in command, command
        script = command.replace(ADDRESS, served)
        endless = next((word for name, word in ENDLESS.items() if f"/{name}" in command), None)
        if endless:
            until_seen(script, environ, endless)
            continue
        if variable := re.match(r"([A-Z]+)=", command):
            environ[variable[1]] = value_of(variable[1], script, environ)
            continue
        done = finished(script, environ)
        assert (done.returncode, done.stderr) == (0, ""), f"{command}\n{done.stderr}"
        assert done.stdout.strip()


def finished(script: str, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs a line until its tool call is ready: the test is faster than a reader."""
    deadline = time.monotonic() + 20
    while True:
        done = in_shell(script, environ)
        if "TOOL_CALL_NOT_READY" not in done.stderr or time.monotonic() > deadline:
            return done


def in_shell(script: str, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs a line as a reader does."""
    return subprocess.run(
        ["bash", "-euc", script], cwd=ROOT, env=environ, check=False, capture_output=True, text=True, timeout=200
    )


def value_of(variable: str, script: str, environ: dict[str, str]) -> str:
    """Returns what a line puts into a variable; runs it until that is there: the test is faster than a reader."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        done = in_shell(f'{script}\necho "${variable}"', environ)
        assert (done.returncode, done.stderr) == (0, ""), f"{script}\n{done.stderr}"
        if value := done.stdout.strip():
            assert re.fullmatch(r"(ses|prt|per)_\w+|[\w-]{30,}", value), value
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
        process.wait(timeout=200)


def test_links_lead_somewhere() -> None:
    """Every relative link of a document names a file."""
    missing = [
        (document, link)
        for document in DOCUMENTS
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", document.read_text())
        if "://" not in link and not (document.parent / link).exists()
    ]
    assert missing == []


def test_the_tests_that_a_promise_names_are_there() -> None:
    """Each `folder/file.py::test_name` of a document is below tests/: a promise without its test is none."""
    gone = []
    for document in DOCUMENTS:
        for file, name in sorted(set(re.findall(r"`(?:tests/)?([\w/]+\.py)::(test_\w+)`", document.read_text()))):
            path = ROOT / "tests" / file
            if not path.is_file() or f"def {name}(" not in path.read_text():
                gone.append(f"{document.relative_to(ROOT)}: {file}::{name}")
    assert gone == []


def test_the_index_names_every_decision() -> None:
    """Once, in the order of the numbers, with the title of its page."""
    folder = ROOT / "docs/decisions"
    pages = sorted(page for page in folder.glob("*.md") if page.name != "README.md")
    listed = re.findall(r"^- \[(\d{4})\]\((\S+)\) (.+(?:\n  .+)*)$", (folder / "README.md").read_text(), re.MULTILINE)
    expected = []
    for page in pages:
        title = re.match(r"# (\d+)\. (.+)\n", page.read_text())
        assert title and int(title[1]) == int(page.name[:4]), page.name
        expected.append((page.name[:4], page.name, title[2]))
    assert listed == expected


@pytest.mark.parametrize(("name", "text"), documents().items())
def test_generated_documents_are_fresh(name: str, text: str) -> None:
    """The tables in docs/ say what the code defines: `make generate` writes them."""
    assert (ROOT / "docs" / name).read_text("utf-8") == text


@pytest.mark.slow
def test_the_json_api_is_complete() -> None:
    """The OpenAPI document has each method with one answer, and every type that it names."""
    document = openapi()
    methods = [m for module in modules() for s in module.DESCRIPTOR.services_by_name.values() for m in s.methods]
    unary = {f"/{m.containing_service.full_name}/{m.name}" for m in methods if not m.server_streaming}
    assert {*document["paths"]} == unary
    named = re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document))
    assert {*named} <= {*document["components"]["schemas"]}
    request = document["components"]["schemas"]["opencode.message.SendMessageRequest"]["properties"]
    assert request["parts"]["items"] == {"$ref": "#/components/schemas/opencode.message.MessagePart"}
    assert all(entry["post"]["description"] for entry in document["paths"].values())


def test_planned_numbers_are_free() -> None:
    """No field of an existing message has or had one, and in messages of the fixed contract they are our own."""
    found, fixed = {message.full_name: message for message in messages()}, fixed_messages()
    for name, planned in PLANNED.items():
        assert not {*planned} & _taken_numbers(found[name]), name
        assert name not in fixed or min(planned) >= 16, name


def _taken_numbers(message: Descriptor) -> set[int]:
    """Returns the numbers that are or were a field's."""
    proto = descriptor_pb2.DescriptorProto()
    message.CopyToProto(proto)
    counted = {number for gap in proto.reserved_range for number in range(gap.start, gap.end)}
    return {field.number for field in proto.field} | counted


def test_the_fold_table_names_every_event_and_its_fields() -> None:
    """Once each, the fields in the order of the contract."""
    text = (ROOT / "docs/reference/events.md").read_text()
    kinds = {field.name: field for field in SessionEvent.DESCRIPTOR.oneofs_by_name["kind"].fields}
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| (.*?) \| .+ \|$", text, re.MULTILINE)
    found = [(kind, re.findall(r"`(\w+)`", fields)) for names, fields in rows for kind in re.findall(r"`(\w+)`", names)]
    table = [(kind, fields) for kind, fields in found if kind in kinds]
    assert sorted(kind for kind, _ in table) == sorted(kinds)
    assert dict(table) == {name: [field.name for field in kind.message_type.fields] for name, kind in kinds.items()}
