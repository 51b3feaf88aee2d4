"""Files of messages: strict data URIs, and paths that cannot lead out of the allowed folders."""

import asyncio
import base64
import hashlib
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from turnwire.core.intake import contents
from turnwire.core.intake.contents import LARGE_BYTES, LoadedFile, decode_data_uri, language_of, load_file
from turnwire.core.intake.readable_files import ReadableFiles
from turnwire.core.intake.requests import NewFile
from turnwire.domain.conversation.file_forms import is_text
from turnwire.domain.conversation.messages import FileForm
from turnwire.domain.errors import InvalidRequest

FIELD = "parts[2].file"
DESCRIPTORS = Path("/proc/self/fd")


TEXT_NAMES = (
    "main.mbt", "build.zig.zon", "LICENSE", "go.mod", "go.sum", "server.log", ".env", ".gitignore", "Makefile.am",
    "Procfile", "Justfile", "schema.prisma", "query.edgeql", "app.ex.eex", "main.v", "lib.gleam", "a.cue", "a.rego",
    "poetry.lock", "setup.cfg", "nginx.conf", "unit.service", "a.properties", "notes.org", "a.srt", "a.ts",
    "CODEOWNERS", "",
)  # fmt: skip
"""Names that projects have; most say nothing of what they are, and some lie."""


def _load(new: NewFile, directory: str = "", roots: tuple[Path, ...] = ()) -> LoadedFile:
    """Loads with a directory that is a root itself, unless roots are given."""
    below = roots or ((Path(directory).resolve(),) if directory else ())
    return asyncio.run(load_file(new, FIELD, ReadableFiles(directory=directory, roots=below, max_bytes=100)))


def _violation(new: NewFile, directory: str = "", roots: tuple[Path, ...] = ()) -> tuple[str, str]:
    with pytest.raises(InvalidRequest) as caught:
        _load(new, directory, roots)
    [violation] = caught.value.violations
    return violation.field, violation.reason


def _uri(content: bytes, mime: str = "text/plain") -> str:
    return f"data:{mime};base64,{base64.b64encode(content).decode()}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A session's directory with one file, beside a secret."""
    (tmp_path / "secret.txt").write_text("secret")
    inside = tmp_path / "work"
    inside.mkdir()
    (inside / "main.py").write_text("print(1)")
    return inside


@pytest.mark.parametrize(
    ("new", "mime"),
    [
        (NewFile(url=_uri(b"x", "image/png"), mime="image/webp", filename="a.txt"), "image/webp"),
        (NewFile(url=_uri(b"x", "image/png"), filename="a.txt"), "image/png"),
        (NewFile(url=_uri(b"x", ""), filename="a.txt"), "text/plain"),
        (NewFile(url=_uri(b"x", "")), "text/plain"),
        (NewFile(url=_uri(b"x", ""), filename="a.unknown-suffix"), "text/plain"),
        (NewFile(url=_uri(b"\xff", ""), filename="a.unknown-suffix"), "application/octet-stream"),
        (NewFile(data=b"x", mime="image/webp", filename="a.txt"), "image/webp"),
        (NewFile(data=b"x", filename="a.txt"), "text/plain"),
        (NewFile(data=b""), "text/plain"),
    ],
)
def test_the_type_said_wins_over_the_uri_and_the_name(new: NewFile, mime: str) -> None:
    """Said, in the URI, by the name, by the bytes: the first that is there."""
    assert _load(new).reference.mime == mime


@pytest.mark.parametrize("mime", ["", "application/octet-stream", "application/x-unheard-of"])
@pytest.mark.parametrize("name", TEXT_NAMES)
def test_text_is_text_whatever_its_name(name: str, mime: str) -> None:
    """Also when the name, or who sends it, gives it a type that nobody knows."""
    found = _load(NewFile(data="größer\n".encode(), filename=name, mime=mime)).reference
    assert (found.form, is_text(found)) == (FileForm.TEXT, True)
    assert found.mime == mime or found.mime.startswith(("text/", "application/"))


@pytest.mark.parametrize(
    ("name", "data", "form"),
    [
        *((name, b"\x7fELF\0\1", FileForm.NAME_ONLY) for name in ("program", "a.wasm", "a.zip", "a.sqlite", "a.mbt")),
        ("latin.cfg", "größer".encode("latin-1"), FileForm.NAME_ONLY),
        ("wide.txt", "größer".encode("utf-16"), FileForm.NAME_ONLY),
        ("a.mp3", b"ID3\4\0", FileForm.NAME_ONLY),
        ("a.png", b"\x89PNG\r\n", FileForm.IMAGE),
        ("broken.png", b"\xff", FileForm.NAME_ONLY),
        ("a.svg", b"<svg/>", FileForm.TEXT),
        ("a.pdf", b"%PDF-1.7", FileForm.DOCUMENT),
        ("a.json", b'"\0"', FileForm.TEXT),
    ],
)
def test_the_form_is_that_of_the_bytes(name: str, data: bytes, form: FileForm) -> None:
    """A file that no model can read is known when it is attached."""
    found = _load(NewFile(data=data, filename=name)).reference
    assert (found.form, is_text(found)) == (form, form is FileForm.TEXT)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("data:text/plain;base64,aGk=", ("text/plain", b"hi")),
        ("data:;base64,aGk=", ("", b"hi")),
        ("data:text/plain;charset=utf-8;base64,aGk=", ("text/plain", b"hi")),
        ("DATA:text/plain;BASE64,aGk=", ("text/plain", b"hi")),
        ("data:image/svg+xml;base64,+/+/", ("image/svg+xml", b"\xfb\xff\xbf")),
        ("data:;base64,", ("", b"")),
    ],
)
def test_data_uris_are_read_as_rfc_2397_says(url: str, expected: tuple[str, bytes]) -> None:
    """Type and parameters are optional, the scheme's case does not matter, content may be empty."""
    assert decode_data_uri(url, "f", 100) == expected


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("https://example.com/a.png", "INVALID"),
        ("file:///etc/passwd", "INVALID"),
        ("data:text/plain;base64", "INVALID"),
        (" data:;base64,aGk=", "INVALID"),
        ("data:" + ";" * 30_000_000, "INVALID"),
        ("data:text/plain;" + "a=b;" * 300 + "base64,aGk=", "INVALID"),
        ("data:text/plain,hi", "BAD_BASE64"),
        ("data:text/plain;base64,aGk", "BAD_BASE64"),
        ("data:text/plain;base64,aGk==", "BAD_BASE64"),
        ("data:text/plain;base64,aG k=", "BAD_BASE64"),
        ("data:text/plain;base64,aGk=\n", "BAD_BASE64"),
        ("data:text/plain;base64,aGk%3D", "BAD_BASE64"),
        ("data:text/plain;base64,a-_=", "BAD_BASE64"),
        ("data:text/plain;base64,aGk=aGk=", "BAD_BASE64"),
        ("data:text/plain;base64,é", "BAD_BASE64"),
    ],
)
def test_anything_but_strict_base64_is_refused(url: str, reason: str) -> None:
    """Nothing is guessed: other schemes, other encodings, missing or excess padding, blanks, other alphabets."""
    assert _violation(NewFile(url=url)) == (f"{FIELD}.url", reason)


@pytest.mark.parametrize("size", [LARGE_BYTES - 1, 3 * LARGE_BYTES, 3 * LARGE_BYTES + 1, 3 * LARGE_BYTES + 2])
def test_large_files_are_decoded_in_pieces(size: int) -> None:
    """The bytes are those of one piece."""
    content = os.urandom(size)
    assert decode_data_uri(_uri(content), "f", size) == ("text/plain", content)


@pytest.mark.parametrize("padded", ["=", "=="])
def test_padding_between_pieces_is_refused(padded: str) -> None:
    """Padding ends base64, wherever a piece of it ends."""
    first = "A" * (LARGE_BYTES - len(padded)) + padded
    with pytest.raises(InvalidRequest):
        decode_data_uri(f"data:;base64,{first}AAAA", "f", LARGE_BYTES * 2)


@pytest.mark.parametrize(("size", "is_on_loop"), [(10, True), (LARGE_BYTES + 1, False)])
async def test_large_files_are_hashed_beside_the_loop(
    size: int, is_on_loop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decoding and hashing 20 MB takes longer than anybody may hold the event loop."""
    threads = []

    def noted(function: Callable[..., object], *arguments: object) -> object:
        threads.append(threading.get_ident())
        return function(*arguments)

    for name in ("decode_data_uri", "reference_to"):
        monkeypatch.setattr(contents, name, partial(noted, getattr(contents, name)))
    readable = ReadableFiles(directory="", roots=(), max_bytes=size)
    loaded = await load_file(NewFile(url=_uri(bytes(size))), FIELD, readable)
    assert loaded.reference.sha256 == hashlib.sha256(bytes(size)).hexdigest()
    assert [thread == threading.get_ident() for thread in threads] == [is_on_loop] * 2


@pytest.mark.parametrize("mime", ["image", "text plain", "a/b/c", "/", "text/\nplain", "é/x"])
def test_a_media_type_is_checked(mime: str) -> None:
    """A type that no provider would understand is refused where it is said."""
    assert _violation(NewFile(url=_uri(b"x"), mime=mime)) == (f"{FIELD}.mime", "INVALID")


@pytest.mark.parametrize("mime", ["image", "text plain", "a/b/c", "é/x"])
def test_a_media_type_inside_the_uri_is_checked_too(mime: str) -> None:
    """It goes to the providers just the same."""
    assert _violation(NewFile(url=_uri(b"x", mime)))[0] == f"{FIELD}.url"


def test_refused_files_leave_no_open_descriptor(folder: Path) -> None:
    """A caller cannot use up the process's files by asking for what cannot be read."""
    os.mkfifo(folder / "pipe")
    (folder / "big").write_bytes(b"x" * 101)
    before = len(list(DESCRIPTORS.iterdir()))
    for path in ("pipe", ".", "big", "missing") * 5:
        with pytest.raises(InvalidRequest):
            _load(NewFile(path=path), str(folder))
    assert len(list(DESCRIPTORS.iterdir())) == before


@pytest.mark.parametrize("directory", ["", "/tmp"])
def test_a_nul_is_refused(directory: str) -> None:
    """The system would take it for the end of the name."""
    assert _violation(NewFile(path="main.py\0.txt"), directory) == (f"{FIELD}.path", "INVALID")


def test_a_relative_path_needs_a_directory(folder: Path) -> None:
    """Roots alone do not say where it begins."""
    assert _violation(NewFile(path="main.py"), "", (folder,)) == (f"{FIELD}.path", "INVALID")


@pytest.mark.parametrize(
    ("filename", "language"),
    [
        ("main.py", "python"),
        ("MAIN.PY", "python"),
        ("a.tar.gz", ""),
        ("Dockerfile", "dockerfile"),
        ("src/Makefile", "make"),
        ("README", ""),
        ("", ""),
        (".py", ""),
        ("x.tsx", "typescript"),
    ],
)
def test_the_language_follows_from_the_name(filename: str, language: str) -> None:
    """By whole name, then by suffix; unknown ones have none."""
    assert language_of(filename) == language
