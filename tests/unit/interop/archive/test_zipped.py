"""Exports in a ZIP: what is found, and what is refused."""

import io
import zipfile
from collections.abc import Callable

import pytest

from tests.support.fakes.foreign_archives import CHATGPT, SMALL, as_json, chatgpt, records, sessions_of, zipped
from turnwire.domain.errors import ArchiveInvalid
from turnwire.interop.archive.bounds import ArchiveLimits


def _conversation(number: int) -> bytes:
    return as_json([chatgpt(id=f"c{number}", conversation_id=f"c{number}")])


def test_divided_exports_come_in_order() -> None:
    """`conversations-000.json` and so on, in folders or not."""
    content = zipped(
        **{
            "x__conversations-001_dot_json": _conversation(1),
            "x__conversations-000_dot_json": _conversation(0),
            "x__conversations-002_dot_json": _conversation(2),
        }
    )
    assert [session.session_id for session, _ in sessions_of(records("chatgpt", content))] == ["c0", "c1", "c2"]


def test_places_name_the_entry() -> None:
    """And the conversation in it."""
    with pytest.raises(ArchiveInvalid) as refused:
        records("chatgpt", zipped(conversations_dot_json=b'[{"id": "x"}]'))
    assert refused.value.metadata["place"] == "conversations.json[0].mapping"


def _flags(content: bytes, position: int, value: int) -> bytes:
    """Returns a ZIP with a changed byte in the head of each entry of its directory."""
    parts = content.split(b"PK\x01\x02")
    changed = [part[: position - 4] + bytes([value]) + part[position - 3 :] for part in parts[1:]]
    return b"PK\x01\x02".join([parts[0], *changed])


GOOD = zipped(conversations_dot_json=as_json([CHATGPT]))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: zipped(other_dot_json=b"[]"), "the ZIP has no conversations.json"),
        (
            lambda: zipped(a__conversations_dot_json=b"[]", b__conversations_dot_json=b"[]"),
            "two files of the same name",
        ),
        (lambda: GOOD[: len(GOOD) // 2], "the ZIP is damaged"),
        (lambda: GOOD[:60] + b"\xff" * 20 + GOOD[80:], "the ZIP is damaged"),
        (lambda: _flags(GOOD, 8, 1), "the ZIP is encrypted"),
        (lambda: _flags(GOOD, 10, 14), "is packed in a way that is not supported"),
        (lambda: b"PK\x05\x06" + b"\x00" * 18, "the ZIP has no conversations.json"),
        (lambda: zipped(**{f"f{index}": b"" for index in range(30)}), "more than 20 entries"),
    ],
)
def test_bad_zips_are_refused(make: Callable[[], bytes], text: str) -> None:
    """As a whole."""
    with pytest.raises(ArchiveInvalid) as refused:
        records("chatgpt", make(), SMALL)
    assert text in refused.value.message


def test_bombs_are_refused() -> None:
    """By their ratio, and by what they unpack to; neither is unpacked."""
    bomb = zipped(conversations_dot_json=b"[" + b" " * 3_000_000 + b"]")
    with pytest.raises(ArchiveInvalid, match="unpacks to more than 200 times its size"):
        records("chatgpt", bomb)
    with pytest.raises(ArchiveInvalid, match="the ZIP unpacks to more than 200000 bytes"):
        records("chatgpt", bomb, SMALL)


def test_lying_sizes_are_noticed() -> None:
    """A file that unpacks to more than the directory says is damaged, and nothing more is unpacked."""
    content = io.BytesIO(zipped(conversations_dot_json=_conversation(0)))
    with zipfile.ZipFile(content) as archive:
        [entry] = archive.infolist()
    size = entry.file_size.to_bytes(4, "little")
    assert content.getvalue().count(size) >= 2
    with pytest.raises(ArchiveInvalid):
        records(
            "chatgpt", content.getvalue().replace(size, (entry.file_size - 20).to_bytes(4, "little")), ArchiveLimits()
        )


def test_names_are_no_paths() -> None:
    """An entry that points outside is an entry like any other."""
    found = records("chatgpt", zipped(**{"..__..__conversations_dot_json": _conversation(0)}))
    assert len(sessions_of(found)) == 1
