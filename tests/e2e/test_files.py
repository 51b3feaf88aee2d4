"""Files that come with messages."""

import base64
import hashlib
import os
import sqlite3
from pathlib import Path

import grpc
import pytest

from opencode.file.file_pb2 import DownloadFileResponse
from opencode.message.message_pb2 import SendMessageRequest
from tests.support.clients.conversation import (
    ask,
    displayed,
    file,
    messages_of,
    new_session,
    refused,
    session_of,
    text,
    turn_ended,
)
from tests.support.servers.running import Client, connect, running_server

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(200))


def data_uri(content: bytes, mime: str = "image/png") -> str:
    """Returns a data URI."""
    return f"data:{mime};base64,{base64.b64encode(content).decode()}"


async def send_file(client: Client, session_id: str = "", **fields: object) -> object:
    """Sends a file with a text, waits for the answer and returns the stored reference."""
    request = SendMessageRequest(session_id=session_id, parts=[text("look"), file(**fields)])
    accepted = await client.messages.SendMessage(request)
    await turn_ended(client, accepted)
    message = next(m for m in await messages_of(client, accepted.session_id) if m.message_id == accepted.message_id)
    return message.parts[1].file


def stored_files(folder: Path) -> dict[str, bytes]:
    """Reads the files table of a stopped or running server's database."""
    with sqlite3.connect(folder / "turnwire.db") as db:
        return dict(db.execute("SELECT sha256, content FROM files"))


@pytest.mark.own_server
async def test_bytes_and_data_uri_are_stored(client: Client, tmp_path: Path) -> None:
    """Hash, size, media type and name are those of the bytes; the bytes stand in the database once."""
    stored = await send_file(client, url=data_uri(PNG), filename="a/b/cat.png")
    assert (stored.sha256, stored.size_bytes) == (hashlib.sha256(PNG).hexdigest(), len(PNG))
    assert (stored.mime, stored.filename, stored.path) == ("image/png", "cat.png", "")
    await send_file(client, url=data_uri(PNG, "image/x-other"))
    assert await send_file(client, data=PNG, filename="a/b/cat.png") == stored
    assert stored_files(tmp_path) == {stored.sha256: PNG}


async def test_files_show_in_display_form(client: Client) -> None:
    """GetMessages carries the reference, not the bytes."""
    stored = await send_file(client, url=data_uri(PNG), filename="cat.png")
    session = (await client.sessions.ListSessions()).sessions[0]
    shown = (await displayed(client, session.id))[0]
    assert list(shown.files) == [stored]
    assert shown.ByteSize() < 600


async def test_mime_of_the_request_wins(client: Client) -> None:
    """Then the data URI's, then the one that the name suggests."""
    assert (await send_file(client, url=data_uri(PNG), mime="image/webp")).mime == "image/webp"
    assert (await send_file(client, url=data_uri(PNG, ""), filename="a.gif")).mime == "image/gif"
    assert (await send_file(client, url=data_uri(PNG, ""))).mime == "application/octet-stream"


async def test_language_comes_from_the_name(client: Client) -> None:
    """Such as "python" for .py; "" for what is no language."""
    assert (await send_file(client, url=data_uri(b"x = 1", "text/plain"), filename="a.py")).language == "python"
    assert (await send_file(client, url=data_uri(PNG), filename="cat.png")).language == ""


@pytest.mark.own_server
async def test_path_is_read_from_the_session_directory(client: Client, tmp_path: Path) -> None:
    """Relative and absolute; the file is read once, so a later change of it changes nothing."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a.py").write_bytes(b"x = 1\n")
    session_id = await new_session(client, directory=str(folder))
    for path in ("a.py", str(folder / "a.py"), "./sub/.//a.py"):
        (folder / "sub").mkdir(exist_ok=True)
        (folder / "sub" / "a.py").write_bytes(b"x = 1\n")
        stored = await send_file(client, session_id, path=path)
        assert (stored.path, stored.filename, stored.language, stored.size_bytes) == (path, "a.py", "python", 6)
    (folder / "a.py").unlink()
    assert stored_files(tmp_path)[stored.sha256] == b"x = 1\n"


async def test_configured_root_may_be_read(tmp_path: Path) -> None:
    """A folder of files.roots is allowed without a session directory."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "a.txt").write_text("hello")
    async with running_server(tmp_path, f'[files]\nroots = ["{root}"]') as server, connect(server.address) as client:
        assert (await send_file(client, path=str(root / "a.txt"))).size_bytes == 5


async def test_nothing_outside_the_roots_is_read(tmp_path: Path) -> None:
    """Dots, absolute paths, links to files and to folders, pipes and missing files are refused with the same words.

    So are ways that lead back below a root: the answer would tell what is on them. Explaining tells no more.
    """
    folder, secret = tmp_path / "work", tmp_path / "secret.txt"
    folder.mkdir()
    secret.write_text("secret")
    (tmp_path / "work-neighbour").mkdir()
    (tmp_path / "work-neighbour" / "a.txt").write_text("secret")
    (folder / "ok.txt").write_text("nobody may know where it is")
    (tmp_path / "way-in").symlink_to(folder)
    round_trips = [f"{tmp_path}/{name}/../work/ok.txt" for name in ("secret.txt", "work-neighbour", "missing")]
    (folder / "link.txt").symlink_to(secret)
    (folder / "up").symlink_to(tmp_path)
    (folder / "null").symlink_to("/dev/null")
    (folder / "environ").symlink_to("/proc/self/environ")
    (folder / "loop").symlink_to(folder / "loop")
    os.mkfifo(folder / "pipe")
    words = set()
    async with running_server(tmp_path, f'[files]\nroots = ["{folder}"]') as server, connect(server.address) as client:
        session_id = await new_session(client, directory=str(folder))
        for path in (
            *("../secret.txt", str(secret), "link.txt", "up/secret.txt", "loop", "pipe", "missing", ".", "/etc/passwd"),
            *("../work-neighbour/a.txt", "null", "environ", "/dev/zero", "/proc/self/environ", "/proc/self/cwd/work/x"),
            *(*round_trips, "../work/ok.txt", "up/work/ok.txt", f"{tmp_path}/way-in/ok.txt"),
        ):
            parts = [text("look"), file(path=path)]
            for call in (
                client.messages.SendMessage(session_id=session_id, parts=parts),
                client.messages.ExplainContext(session_id=session_id, parts=parts),
            ):
                refusal = await refused(call)
                assert refusal.code == grpc.StatusCode.INVALID_ARGUMENT, path
                assert refusal.fields == ["parts[1].file.path"], path
                words.add(refusal.message)
        assert len(words) == 1
        assert await messages_of(client, session_id) == []


@pytest.mark.own_server
@pytest.mark.slow
async def test_local_server_reads_below_the_folder_where_it_was_started(client: Client, tmp_path: Path) -> None:
    """Without any configuration, by absolute paths too; nothing above it."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.txt").write_text("hello")
    assert (await send_file(client, path=str(tmp_path / "sub" / "a.txt"))).size_bytes == 5
    above = tmp_path.parent / f"{tmp_path.name}.txt"
    above.write_text("secret")
    refusal = await refused(client.messages.SendMessage(parts=[file(path=str(above))]))
    assert "is not a readable file below a folder that the server may read" in refusal.message


async def test_tenant_without_roots_reads_no_file(tmp_path: Path) -> None:
    """Neither by a path nor with a directory; the errors say so. Files that are sent with a message work."""
    (tmp_path / "a.txt").write_text("hello")
    toml = f'[files]\nroots = ["{tmp_path}"]\n[tenants.default]\nroots = []'
    async with running_server(tmp_path, toml) as server, connect(server.address) as client:
        for path in ("a.txt", str(tmp_path / "a.txt"), "missing"):
            refusal = await refused(client.messages.SendMessage(parts=[file(path=path)]))
            assert refusal.fields == ["parts[0].file.path"]
            assert "names a file of the server, and none may be read" in refusal.message
        refusal = await refused(new_session(client, directory=str(tmp_path)))
        assert refusal.fields == ["settings.directory"]
        assert "is set, and no files of the server may be read" in refusal.message
        assert not (await client.sessions.ListSessions()).sessions
        assert (await send_file(client, data=b"hello")).size_bytes == 5


@pytest.mark.own_server
async def test_link_inside_the_directory_is_followed(client: Client, tmp_path: Path) -> None:
    """Its target counts."""
    (tmp_path / "a.txt").write_text("hello")
    (tmp_path / "link.txt").symlink_to(tmp_path / "a.txt")
    session_id = await new_session(client, directory=str(tmp_path))
    assert (await send_file(client, session_id, path="link.txt")).size_bytes == 5


async def test_sizes_are_limited(tmp_path: Path) -> None:
    """A file over files.max_bytes is refused with both sizes, from a data URI and from a path; one at it goes."""
    (tmp_path / "at.bin").write_bytes(bytes(100))
    (tmp_path / "over.bin").write_bytes(bytes(101))
    async with running_server(tmp_path, "[files]\nmax_bytes = 100") as server, connect(server.address) as client:
        session_id = await new_session(client, directory=str(tmp_path))
        assert (await send_file(client, session_id, path="at.bin")).size_bytes == 100
        assert (await send_file(client, session_id, url=data_uri(bytes(100)))).size_bytes == 100
        head = (await session_of(client, session_id)).head_sequence
        for fields in ({"path": "over.bin"}, {"url": data_uri(bytes(101))}, {"url": data_uri(bytes(1000))}):
            request = SendMessageRequest(session_id=session_id, parts=[file(**fields)])
            refusal = await refused(client.messages.SendMessage(request))
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "MESSAGE_TOO_LARGE")
            assert refusal.metadata["maxBytes"] == "100"
            assert int(refusal.metadata["actualBytes"]) > 100
            assert refusal.fields == [f"parts[0].file.{next(iter(fields))}"]
        assert (await session_of(client, session_id)).head_sequence == head


@pytest.mark.own_server
async def test_unshared_files_go_with_their_session(client: Client, tmp_path: Path) -> None:
    """A file that another session uses stays."""
    shared, alone = b"shared", b"alone"
    one, two = await new_session(client), await new_session(client)
    for session_id, content in ((one, shared), (one, alone), (two, shared)):
        await send_file(client, session_id, url=data_uri(content, "text/plain"))
    await client.sessions.DeleteSession(session_id=one)
    assert list(stored_files(tmp_path).values()) == [shared]


async def test_model_is_told_of_the_file(client: Client) -> None:
    """The echo model names the files that came with the text."""
    request = SendMessageRequest(parts=[text("look"), file(url=data_uri(PNG), filename="cat.png")])
    accepted = await client.messages.SendMessage(request)
    await turn_ended(client, accepted)
    assert "cat.png" in (await displayed(client, accepted.session_id))[1].text_parts[-1]


async def test_files_of_the_kernel_are_refused(tmp_path: Path) -> None:
    """The server's environment, with its keys, is never read, though the roots hold everything."""
    async with running_server(tmp_path, '[files]\nroots = ["/"]') as server, connect(server.address) as client:
        session_id = await new_session(client, directory="/proc/self")
        for path in ("environ", "/proc/self/environ", "/proc/cpuinfo", "/sys/kernel/uevent_seqnum", "/dev/null"):
            request = ask("read", session_id)
            request.parts.append(file(path=path))
            refusal = await refused(client.messages.SendMessage(request))
            assert refusal.fields == ["parts[1].file.path"]


@pytest.mark.own_server
async def test_tokens_of_the_server_are_refused(client: Client, tmp_path: Path) -> None:
    """By any name; another file beside them is read."""
    tokens = tmp_path / "turnwire-tokens.db"
    for path in (tokens, tmp_path / "turnwire-tokens.db-journal", tmp_path / "a.txt"):
        path.write_text("hashes")
    (tmp_path / "hard.txt").hardlink_to(tokens)
    (tmp_path / "soft.txt").symlink_to(tokens)
    session_id = await new_session(client, directory=str(tmp_path))
    for name in ("turnwire-tokens.db", "turnwire-tokens.db-journal", "hard.txt", "soft.txt", str(tokens)):
        request = SendMessageRequest(session_id=session_id, parts=[file(path=name)])
        refusal = await refused(client.messages.SendMessage(request))
        assert refusal.fields == ["parts[0].file.path"], name
        assert "is a file of the server itself" in refusal.message
    assert (await send_file(client, session_id, path="a.txt")).size_bytes == 6


async def download(client: Client, session_id: str, sha256: str) -> list[DownloadFileResponse]:
    """Reads a whole file."""
    return [answer async for answer in client.files.DownloadFile(session_id=session_id, sha256=sha256)]


@pytest.mark.matrix
@pytest.mark.parametrize("size", [0, 1, 65_536, 65_537, 200_000])
async def test_a_file_is_downloaded_in_order(client: Client, size: int) -> None:
    """In pieces of 64 KiB at most, the size of the whole in the first answer only; an empty file is one answer."""
    content = os.urandom(size)
    session_id = await new_session(client)
    stored = await send_file(client, session_id, url=data_uri(content))
    answers = await download(client, session_id, stored.sha256)
    assert b"".join(answer.data for answer in answers) == content
    assert [len(answer.data) for answer in answers] == [
        *[65_536] * (size // 65_536),
        *([size % 65_536] if size % 65_536 or not size else []),
    ]
    assert [answer.size_bytes if answer.HasField("size_bytes") else None for answer in answers] == [
        size,
        *[None] * (len(answers) - 1),
    ]


async def test_a_session_downloads_its_own_files(client: Client) -> None:
    """Another session's file, and a hash that nobody knows, are not found; neither is a file in no session."""
    one, two = await new_session(client), await new_session(client)
    mine = (await send_file(client, one, url=data_uri(b"mine"))).sha256
    theirs = (await send_file(client, two, url=data_uri(b"theirs"))).sha256
    for sha256 in (theirs, "0" * 64, mine.upper(), "no hash"):
        refusal = await refused(download(client, one, sha256))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "FILE_NOT_FOUND")
        assert "ResourceInfo" in refusal.details
    refusal = await refused(download(client, "ses_none", mine))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND")
    assert (await refused(download(client, "", ""))).fields == ["session_id", "sha256"]


async def test_a_file_of_a_deleted_session_is_gone(client: Client) -> None:
    """A session that shares it still reads it."""
    one, two = await new_session(client), await new_session(client)
    for session_id in (one, two):
        sha256 = (await send_file(client, session_id, url=data_uri(b"shared"))).sha256
    await client.sessions.DeleteSession(session_id=one)
    assert (await refused(download(client, one, sha256))).reason == "SESSION_NOT_FOUND"
    [answer] = await download(client, two, sha256)
    assert answer.data == b"shared"
