"""`turnwire backup` and `turnwire compact`: a database written anew, as a verified copy or in its place."""

from pathlib import Path

import msgspec

from turnwire.cli.output import print_error, print_json, print_line, progress_bar
from turnwire.domain.errors import StorageError
from turnwire.storage.sqlite.care.backup import back_up
from turnwire.storage.sqlite.care.shrinking import compact


def run_backup(source: Path, target: Path, *, replace: bool, as_json: bool) -> int:
    """Copies a database and prints what the copy holds. Returns the exit code: 0, or 1 when there is no copy."""
    try:
        with progress_bar() as bar:
            bar.begin("copying")
            backup = back_up(source, target, replace=replace, advance=bar.show)
    except StorageError as error:
        print_error(error.message)
        return 1
    if as_json:
        print_json(msgspec.to_builtins(backup))
    else:
        rows = ", ".join(f"{backup.rows[table]} {table}" for table in ("sessions", "messages", "events", "files"))
        print_line(f"{backup.path}: {backup.size_bytes} bytes, schema {backup.schema_version}, {rows}; verified")
    return 0


def run_compact(path: Path, *, as_json: bool) -> int:
    """Compacts a database and prints how large it was and is. Returns the exit code: 0, or 1 when it is as it was."""
    try:
        compacted = compact(path)
    except StorageError as error:
        print_error(error.message)
        return 1
    if as_json:
        print_json(msgspec.to_builtins(compacted))
    else:
        print_line(f"{compacted.path}: {compacted.bytes_before} bytes before, {compacted.bytes_after} now")
    return 0
