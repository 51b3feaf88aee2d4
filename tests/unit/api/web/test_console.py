"""The files of the console: what is sent, how it is kept, and that nothing else is."""

import gzip
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest

from turnwire.api.web.console import Console
from turnwire.api.web.exchange import Exchange, shared_bodies

SCRIPT = b"console.log(1);" * 200


@pytest.fixture
def console(tmp_path: Path) -> Console:
    """A console of three files, beside a secret."""
    folder = tmp_path / "console"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_bytes(b"<!doctype html>page")
    (folder / "assets/app-1a2b.js").write_bytes(SCRIPT)
    (folder / ".env").write_text("secret")
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    return Console(folder)


async def get(console: Console, path: str, verb: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Returns status, headers and body."""
    events: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        raise AssertionError("a body was read")

    async def send(event: MutableMapping[str, Any]) -> None:
        events.append(event)

    sent = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"method": verb, "path": path, "headers": sent}
    await console.answer(Exchange(scope, receive, send, shared_bodies(2**20)))
    start, *rest = events
    found = {name.decode(): value.decode() for name, value in start["headers"]}
    return start["status"], found, b"".join(event["body"] for event in rest)


async def test_assets_are_kept_for_good_and_the_page_is_asked_for_again(console: Console) -> None:
    """Assets have the hash of their content in their name."""
    status, headers, body = await get(console, "/assets/app-1a2b.js", accept_encoding="gzip, br")
    assert (status, headers["content-encoding"], gzip.decompress(body)) == (200, "gzip", SCRIPT)
    assert headers["cache-control"] == "public, max-age=31536000, immutable"
    assert headers["content-type"] == "text/javascript; charset=utf-8"
    status, headers, body = await get(console, "/")
    assert (status, headers["cache-control"], body) == (200, "no-cache", b"<!doctype html>page")
    assert "script-src 'self'" in headers["content-security-policy"]
    status, _, body = await get(console, "/", if_none_match=headers["etag"])
    assert (status, body) == (304, b"")
    status, headers, body = await get(console, "/", verb="HEAD")
    assert (status, headers["content-length"], body) == (200, "19", b"")


async def test_views_of_the_console_get_its_page(console: Console) -> None:
    """A view that is opened by its address is the console's affair; a file that is missing is missing."""
    assert (await get(console, "/sessions/ses_1"))[0] == 200
    assert (await get(console, "/assets/gone.js"))[0] == 404
    assert (await get(console, "/favicon.png"))[0] == 404


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/assets/../../secret.txt",
        "/.env",
        "/link.txt",
        "/..\\secret.txt",
        "/a\0.txt",
        "/" + "a." * 9999,
    ],
)
async def test_nothing_outside_is_sent(console: Console, path: str) -> None:
    """Neither by a path that leads out, nor by a link, nor what is hidden."""
    status, _, body = await get(console, path)
    assert (status, b"secret" in body) == (404, False)


async def test_a_new_build_is_sent_without_a_restart(console: Console, tmp_path: Path) -> None:
    """Files are kept in memory until they change."""
    await get(console, "/")
    (tmp_path / "console/index.html").write_bytes(b"another page")
    assert (await get(console, "/"))[2] == b"another page"
