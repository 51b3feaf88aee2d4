"""The files of the console, which ship with the server."""

import gzip
import hashlib
import mimetypes
from pathlib import Path
from typing import NamedTuple

from turnwire.api.web.encoding.compression import GZIP, WORTHWHILE_BYTES, accepts_gzip
from turnwire.api.web.exchange import Exchange, Headers

FOLDER = Path(__file__).parents[2] / "console"
"""Where the built console is; absent in a checkout in which it was not built."""

ASSETS = "assets/"
"""Files below it have the hash of their content in their name, so browsers keep them for good."""

SECURITY_HEADERS: Headers = (
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
        "media-src 'self' blob:; connect-src 'self'; manifest-src 'self'; worker-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'",
    ),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("referrer-policy", "no-referrer"),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
)
"""A page loads nothing from elsewhere, runs no script that stands in it, and is shown in no frame."""

_NOT_BUILT = b"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Turnwire</title>
<h1>Turnwire</h1>
<p>The server runs. This copy of it has no console: it was not built. Calls are answered all the same.</p>
</html>
"""

_TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".webmanifest": "application/manifest+json"}
"""Media types that `mimetypes` would take from the machine, which may be wrong."""

_Stamp = tuple[int, int]


class _File(NamedTuple):
    stamp: _Stamp
    content: bytes
    compressed: bytes | None
    """None if it is not smaller."""
    etag: str


class Console:
    """Serves the files of a folder, which are kept in memory once they were asked for."""

    def __init__(self, folder: Path = FOLDER) -> None:
        """Takes the folder. It may be absent."""
        self._folder = folder.resolve()
        self._files: dict[Path, _File] = {}

    async def answer(self, exchange: Exchange) -> None:
        """Writes the file that a GET or HEAD asks for. Paths of the console's own views get its only page."""
        path = self._path(exchange.path)
        if path is None:
            await _answer_text(exchange, 404, b"not found\n", "text/plain; charset=utf-8")
            return
        found = self._read(path)
        if found is None:
            await _answer_text(exchange, 200, _NOT_BUILT, "text/html; charset=utf-8")
            return
        is_asset = path.is_relative_to(self._folder / ASSETS)
        headers = [
            ("etag", found.etag),
            ("vary", "accept-encoding"),
            ("cache-control", "public, max-age=31536000, immutable" if is_asset else "no-cache"),
            *SECURITY_HEADERS,
        ]
        if found.etag in (exchange.header("if-none-match") or "").replace("W/", ""):
            await exchange.start(304, headers)
            await exchange.write(b"", last=True)
            return
        headers.append(("content-type", _content_type(path)))
        body = found.content
        if found.compressed is not None and accepts_gzip(exchange.header("accept-encoding") or ""):
            body = found.compressed
            headers.append(("content-encoding", GZIP))
        await _answer(exchange, 200, headers, body)

    def _path(self, asked: str) -> Path | None:
        """Returns the file of a path; None if there is none."""
        index = self._folder / "index.html"
        parts = [part for part in asked.split("/") if part]
        if any(part.startswith(".") or "\\" in part or "\0" in part for part in parts):
            return None
        if not parts:
            return index
        path = self._folder.joinpath(*parts)
        try:
            if path.is_file() and path.resolve().is_relative_to(self._folder):
                return path
        except OSError:  # a name that is too long
            return None
        is_view = "." not in parts[-1] and f"{parts[0]}/" != ASSETS
        return index if is_view and index.is_file() else None

    def _read(self, path: Path) -> _File | None:
        try:
            status = path.stat()
            stamp = (status.st_mtime_ns, status.st_size)
            known = self._files.get(path)
            if known is not None and known.stamp == stamp:
                return known
            content = path.read_bytes()
        except OSError:
            return None
        small = gzip.compress(content, 9, mtime=0) if len(content) >= WORTHWHILE_BYTES else content
        etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        found = _File(stamp, content, small if len(small) < len(content) else None, etag)
        self._files[path] = found
        return found


def _content_type(path: Path) -> str:
    kind = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return f"{kind}; charset=utf-8" if kind.startswith("text/") else kind


async def _answer_text(exchange: Exchange, status: int, body: bytes, kind: str) -> None:
    await _answer(exchange, status, [("content-type", kind), ("cache-control", "no-store"), *SECURITY_HEADERS], body)


async def _answer(exchange: Exchange, status: int, headers: Headers, body: bytes) -> None:
    if exchange.method != "HEAD":
        await exchange.answer(status, headers, body)
        return
    await exchange.start(status, (*headers, ("content-length", str(len(body)))))
    await exchange.write(b"", last=True)
