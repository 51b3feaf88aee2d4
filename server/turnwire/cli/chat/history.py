"""What was typed, kept for the next chat."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from prompt_toolkit.history import FileHistory, History, InMemoryHistory

MAX_BYTES = 1 << 20
"""A longer file is cut to its newer half when a chat begins."""

MAX_ENTRY_CHARS = 32_768
"""A longer text is not kept."""

_ENTRY = b"\n# "
"""How prompt_toolkit begins an entry."""


def open_history(environ: Mapping[str, str]) -> History:
    """Returns the history in the state folder of XDG, for its owner's eyes; one in memory when it cannot be used."""
    home = environ.get("HOME", "")
    state = environ.get("XDG_STATE_HOME", "")
    # The standard wants relative paths ignored.
    folder = Path(state) if state.startswith("/") else Path(home, ".local/state") if home else None
    if folder is None:
        return InMemoryHistory()
    file = folder / "turnwire" / "chat_history"
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "r+b") as opened:
            os.fchmod(opened.fileno(), 0o600)
        _cut(file)
    except OSError:
        return InMemoryHistory()
    return _BoundedHistory(str(file))


class _BoundedHistory(FileHistory):
    """Keeps what is not too long; a full disk costs the history and not the chat."""

    def store_string(self, string: str) -> None:
        """Appends a text."""
        if len(string) <= MAX_ENTRY_CHARS:
            with suppress(OSError):
                super().store_string(string)


def _cut(file: Path) -> None:
    """Leaves the newer half of a file that is too long. Another chat may lose what it appends at this moment."""
    size = file.stat().st_size
    if size <= MAX_BYTES:
        return
    with file.open("rb") as opened:
        opened.seek(size - MAX_BYTES // 2)
        _, found, kept = opened.read().partition(_ENTRY)
    new = file.with_name(f"{file.name}.{os.getpid()}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(found + kept)
    new.replace(file)
