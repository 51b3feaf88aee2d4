"""Files of messages, as each API can take them."""

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.models.provider_requests import PNG, anthropic, chat, message, responses, without_breakpoints
from turnwire.domain.conversation.messages import File


def file(mime: str, name: str, size: int = 4, language: str = "") -> File:
    """Returns a file whose hash is its name."""
    return File(sha256=name, size_bytes=size, mime=mime, filename=name, language=language)


FILES = {"a.png": PNG, "b.pdf": b"%PDF", "c.py": b"x = 1", "d.bin": b"\xff\x00"}
WITH_FILES = message(
    "user",
    file("image/png", "a.png"),
    file("application/pdf", "b.pdf"),
    file("application/octet-stream", "c.py", language="python"),
    file("application/octet-stream", "d.bin"),
    file("image/png", "gone.png"),
)
INLINED = '<file name="c.py">\nx = 1\n</file>'
STUB = "[file d.bin (application/octet-stream, 4 bytes): cannot be shown to this model]"
GONE = "[file gone.png (image/png, 4 bytes): not available]"


def encoded(data: bytes) -> str:
    """Returns the bytes in base64."""
    return base64.b64encode(data).decode()


def test_files() -> None:
    """Images and PDFs in each API's form, text inlined with its name, a line for the rest."""
    png, pdf = encoded(PNG), encoded(b"%PDF")
    assert without_breakpoints(anthropic(WITH_FILES, files=FILES))[0]["content"] == [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": png}},
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": pdf},
            "title": "b.pdf",
        },
        *({"type": "text", "text": text} for text in (INLINED, STUB, GONE)),
    ]
    assert chat(WITH_FILES, files=FILES)["messages"][0]["content"] == [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{png}"}},
        {"type": "file", "file": {"filename": "b.pdf", "file_data": f"data:application/pdf;base64,{pdf}"}},
        *({"type": "text", "text": text} for text in (INLINED, STUB, GONE)),
    ]
    assert responses(WITH_FILES, files=FILES)["input"][0]["content"] == [
        {"type": "input_image", "image_url": f"data:image/png;base64,{png}", "detail": "auto"},
        {"type": "input_file", "filename": "b.pdf", "file_data": f"data:application/pdf;base64,{pdf}"},
        *({"type": "input_text", "text": text} for text in (INLINED, STUB, GONE)),
    ]


@pytest.mark.parametrize("write", [anthropic, chat, responses])
@pytest.mark.parametrize("mime", ["application/octet-stream", "application/x-unheard-of"])
def test_text_is_sent_whatever_its_type(write: Callable[..., dict[str, Any]], mime: str) -> None:
    """UTF-8 without NUL; what has one is named, and text that claims to be a picture too."""
    said = message("user", file(mime, "a.mbt"), file(mime, "b.mbt"), file("image/png", "c.png"))
    sent = json.dumps(write(said, files={"a.mbt": b"fn main", "b.mbt": b"a\0b", "c.png": b"abc"}))
    assert "fn main" in sent
    assert [f"[file b.mbt ({mime}, 4 bytes): cannot be shown" in sent, "abc" in sent] == [True, False]


@pytest.mark.parametrize("write", [anthropic, chat, responses])
def test_files_go_to_models_that_can_see_them(write: Callable[..., dict[str, Any]]) -> None:
    """As far as the configuration says what they can; a line stands for the others."""
    png, pdf = encoded(PNG), encoded(b"%PDF")
    for capabilities, shown in (
        (("tools",), [False, False]),
        (("images",), [True, False]),
        (("documents",), [False, True]),
        (None, [True, True]),
    ):
        sent = json.dumps(write(WITH_FILES, files=FILES, capabilities=capabilities))
        assert [png in sent, pdf in sent] == shown
        assert sent.count("cannot be shown") == 1 + shown.count(False)
