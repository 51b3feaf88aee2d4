"""`turnwire move`: takes a whole database to PostgreSQL, and back to a file."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from turnwire.cli.output import print_error, print_json, print_line, progress_bar
from turnwire.config import Config, ConfigError, load_config
from turnwire.config.review.secrets import Masking
from turnwire.domain.errors import StorageError
from turnwire.storage.moving import Moved, move
from turnwire.storage.tokens import is_address


def run_move(
    path: Path | None, environ: Mapping[str, str], options: Mapping[str, str], target: str, *, as_json: bool
) -> int:
    """Moves the database of a configuration, and prints what came.

    Args:
        path: The configuration file; None looks for one, as the server does.
        environ: The process's environment.
        options: Options that override both. With `--db` that file is moved, whatever `storage.url` says.
        target: A file, or the address of a database of PostgreSQL.
        as_json: Whether the result is JSON.

    Returns:
        The exit code: 0; 1 when nothing was moved, 2 for a wrong configuration or address.
    """
    try:
        config = load_config(path, environ, options)
        if is_address(target):
            load_config(path, {**environ, "TURNWIRE_STORAGE_URL": target}, options)
    except ConfigError as error:
        text = f"--to {error.problem}" if error.source == "TURNWIRE_STORAGE_URL" else str(error)
        print_error(Masking(environ).text(text))
        return 2
    source = str(config.storage.path) if "--db" in options else config.storage.url or str(config.storage.path)
    places = _token_places(_serving(config, source), target)
    try:
        with progress_bar() as bar:
            bar.begin("moving")
            moved = move(source, target, bar.show, tokens=places)
    except StorageError as error:
        print_error(error.message)
        return 1
    if as_json:
        print_json(msgspec.to_builtins(moved))
    else:
        _print(moved, config)
    return 0


def _serving(config: Config, database: str) -> Config:
    """Returns the configuration with another database."""
    place = {"url": database} if is_address(database) else {"url": "", "path": Path(database).absolute()}
    return msgspec.structs.replace(config, storage=msgspec.structs.replace(config.storage, **place))


def _token_places(config: Config, target: str) -> tuple[str, str] | None:
    """Returns where the tokens are and where a server of the target looks for them; None when that is the same."""
    before, after = config.token_place(), _serving(config, target).token_place()
    return None if before == after else (before, after)


def _print(moved: Moved, config: Config) -> None:
    rows = ", ".join(f"{moved.rows[table]} {table}" for table in ("sessions", "messages", "events", "files"))
    print_line(f"{moved.target}: {rows}; {sum(moved.rows.values())} rows of {len(moved.rows)} tables, all compared")
    print_line(f"{moved.source} is as it was. Messages are indexed for search again when a server starts.")
    if moved.tokens:
        print_line(f"{moved.tokens} tokens of callers came along.")
    elif config.auth.tokens is not None:
        print_line(f"Tokens of callers stay in {config.auth.tokens}, which auth.tokens names.")
