"""Files of archives."""

import pytest

from tests.support.fakes.foreign_archives import PNG, PNG_URI
from turnwire.interop.archive.attachments import NotCarried, from_base64, from_text, from_url, reference


def test_data_uris_give_type_and_bytes() -> None:
    """The type that the archive says counts more than that of the URI."""
    found = from_url(PNG_URI, 100)
    assert (found.load(), found.mime) == (PNG, "image/png")
    assert from_url("DATA:text/plain;charset=utf-8;BASE64,aGk=", 100).load() == b"hi"
    assert from_url(PNG_URI, 100, mime="image/x-png").mime == "image/x-png"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("https://example.com/a.png", "FILE_NOT_IN_ARCHIVE"),
        ("data:" + "x" * 5_000_000, "FILE_NOT_IN_ARCHIVE"),
        ("data:" + ";" * 5_000_000, "FILE_NOT_IN_ARCHIVE"),
        ("data:text/plain,hi", "FILE_MALFORMED"),
        ("data:;base64,a", "FILE_MALFORMED"),
        ("data:;base64,ä", "FILE_MALFORMED"),
        ("data:;base64," + "A" * 200, "FILE_TOO_LARGE"),
        ("", "FILE_NOT_IN_ARCHIVE"),
    ],
)
def test_other_urls_are_not_carried(url: str, reason: str) -> None:
    """Whatever their length, at once, and nothing is fetched."""
    with pytest.raises(NotCarried) as refused:
        from_url(url, 100).load()
    assert refused.value.reason == reason


@pytest.mark.parametrize(
    ("name", "mime", "content", "expected"),
    [
        ("../../etc/a.png", "", b"x", ("a.png", "image/png")),
        ("C:\\x\\b.csv", "", b"x", ("b.csv", "text/csv")),
        ("..", "", b"x", ("", "application/octet-stream")),
        ("", "", PNG, ("", "image/png")),
        ("a.dat", "", b"RIFF1234WEBPVP8 ", ("a.dat", "image/webp")),
        ("a.png", "text/plain", b"x", ("a.png", "text/plain")),
        ("a.png", "no type\n", b"x", ("a.png", "image/png")),
        ("a\nb\0.png", "", b"x", ("a?b?.png", "image/png")),
    ],
)
def test_names_have_no_folders_and_types_are_guessed(
    name: str, mime: str, content: bytes, expected: tuple[str, str]
) -> None:
    """By the name, or by how the bytes begin."""
    found = from_text("x", 10, filename=name)
    file = reference(from_base64("", 10, mime=mime, filename=found.filename), content)
    assert (file.filename, file.mime) == expected
