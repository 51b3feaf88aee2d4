"""The commands and their options; docs/operate/operations.md has their exit codes and the shape of `--json`.

Exit codes: 0 success, 1 failure (one line on stderr says why), 2 wrong options or configuration.
"""

# ruff: noqa: PLC0415 - each command imports its work when it runs; see the package's docstring

import os
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from turnwire import __version__
from turnwire.cli.connection import Endpoint, takes_connection

if TYPE_CHECKING:
    from turnwire.cli.tokens import TokenCommands

_TIMES = click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M"])
_PATH = click.Path(path_type=Path)
_DIMENSIONS = ("day", "model", "session", "subject")

_CONFIG_HELP = "Configuration file. Default: $TURNWIRE_CONFIG, else ./turnwire.toml if there."
_config = click.option("--config", type=_PATH, help=_CONFIG_HELP)
_listen = click.option("--listen", help="Address to serve on, such as 127.0.0.1:50051.")
_db = click.option("--db", help="The server's SQLite file.")
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


class _File(click.Path):
    """A file of SQLite."""

    def convert(
        self, value: "str | os.PathLike[str]", param: click.Parameter | None, ctx: click.Context | None
    ) -> "str | bytes | os.PathLike[str]":
        """Says for the address of a database of PostgreSQL what does the same there."""
        if str(value).startswith(("postgresql://", "postgres://")):
            self.fail(
                "this is for SQLite files. PostgreSQL has its own means, such as pg_dump, an archive of its log and"
                " pg_amcheck: see docs/operate/database.md",
                param,
                ctx,
            )
        return super().convert(value, param, ctx)


_given_config = click.argument("file", type=_PATH, required=False)
_database = click.argument("file", type=_File(path_type=Path))


@click.group()
@click.version_option(__version__, message="turnwire %(version)s")
def app() -> None:
    """A conversation server for AI frontends: gRPC on one side, models on the other."""


@app.group()
def config() -> None:
    """Check the configuration, or show what is in effect."""


@app.group()
def token() -> None:
    """Create, list and revoke the tokens of callers, also while the server runs."""


@app.command()
@_config
@_listen
@_db
@click.option("--web", help="Address of the console and of calls over HTTP, such as 127.0.0.1:8080.")
@click.option("--processes", type=click.IntRange(1, 16), help="Number of nodes on one PostgreSQL behind one address.")
def serve(config: Path | None, listen: str | None, db: str | None, web: str | None, processes: int | None) -> None:
    """Run the server until SIGTERM or Ctrl-C."""
    import gc

    gc.disable()  # a start makes a million objects that stay; the server switches it on again when it listens
    # Otherwise gRPC's core adds its own lines to the one that says why the server cannot start.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # uvloop starts MCP servers with fork(). gRPC would stop its threads for that, needlessly: the child execs at once.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

    # Where rich is installed, structlog imports it for tracebacks that a server does not draw: a tenth of a start.
    sys.modules["rich"] = None  # type: ignore[assignment]
    import structlog  # noqa: F401

    del sys.modules["rich"]
    if processes is None:
        from turnwire.cli.serve import run_server

        code = run_server(config, os.environ, _options(listen, db, web))
    else:
        from turnwire.cli.processes import run_processes

        code = run_processes(config, os.environ, _options(listen, db, web), processes)
    # All is stored and closed. The end of the interpreter would look at all objects once more, for up to a second, and
    # free what belongs to gRPC after its core is gone: now and then a stop ended with SIGSEGV.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@app.command()
def demo() -> None:
    """Show a whole conversation: a server, a client, a streamed answer. Needs no key and no network."""
    from turnwire.cli.demo import run_demo

    sys.exit(run_demo())


@app.command()
@takes_connection
@click.argument("words", nargs=-1)
@click.option("--session", default="", help="Session to continue. Default: a new one.")
@click.option("--model", default="", help="PROVIDER/MODEL. Default: the session's or the server's.")
def chat(connection: Endpoint, words: tuple[str, ...], session: str, model: str) -> None:
    """Talk to a model through a running server. Ctrl-C ends the answer, Ctrl-D the chat.

    WORDS are the message to send. Default: standard input if it is piped, else a prompt.
    """
    from turnwire.cli.chat.prompt import run_chat

    if model and not all(model.partition("/")):
        raise click.BadParameter("must be of the form PROVIDER/MODEL", param_hint="--model")
    sys.exit(run_chat(connection, session, model, " ".join(words)))


@app.command()
@takes_connection
@click.option(
    "--timeout", type=click.FloatRange(0.1), default=5.0, show_default=True, help="Seconds to wait for the answer."
)
def health(connection: Endpoint, timeout: float) -> None:
    """Ask a running server whether it serves. Exits with 0 if it does and 1 if not: for health checks and scripts."""
    from turnwire.cli.health import run_health

    sys.exit(run_health(connection, timeout))


@token.command("create")
@click.option("--subject", required=True, help="Subject: who uses the token.")
@click.option("--tenant", default="default", show_default=True, help="Tenant whose data it opens.")
@click.option("--role", default="writer", show_default=True, help="reader, writer or admin.")
@click.option("--expires", default="90d", show_default=True, help="Validity: 90d, 12h, 30m or never.")
@_config
@_db
@_json
def create_token(  # noqa: PLR0917 - click passes names
    subject: str, tenant: str, role: str, expires: str, config: Path | None, db: str | None, as_json: bool
) -> None:
    """Create a token and print it. It is stored as a hash, so this is the only time that it can be read."""
    sys.exit(_token_commands(config, db, as_json).create(tenant, subject, role, expires))


@token.command("list")
@_config
@_db
@_json
def list_tokens(config: Path | None, db: str | None, as_json: bool) -> None:
    """List all tokens with their ids, revoked and expired ones too. The tokens themselves are not stored."""
    sys.exit(_token_commands(config, db, as_json).list())


@token.command("revoke")
@click.argument("token_id")
@_config
@_db
@_json
def revoke_token(token_id: str, config: Path | None, db: str | None, as_json: bool) -> None:
    """Revoke a token by its id. Running servers refuse it within about a second."""
    sys.exit(_token_commands(config, db, as_json).revoke(token_id))


def _token_commands(config: Path | None, db: str | None, as_json: bool) -> "TokenCommands":
    from turnwire.cli.tokens import TokenCommands

    return TokenCommands(config, os.environ, _options(None, db), as_json=as_json)


@config.command("check")
@_given_config
@_config
@_listen
@_db
@_json
def config_check(file: Path | None, config: Path | None, listen: str | None, db: str | None, as_json: bool) -> None:
    """Name every problem of the configuration. Exit code 0: it is valid; 2: it is not."""
    from turnwire.cli.configuration import run_check

    sys.exit(run_check(_one_file(file, config), os.environ, _options(listen, db), as_json=as_json))


@config.command("show")
@_given_config
@_config
@_listen
@_db
@_json
def config_show(file: Path | None, config: Path | None, listen: str | None, db: str | None, as_json: bool) -> None:
    """Print the configuration that is in effect as TOML, with the source of each value. Secrets are masked."""
    from turnwire.cli.configuration import run_show

    sys.exit(run_show(_one_file(file, config), os.environ, _options(listen, db), as_json=as_json))


def _one_file(file: Path | None, config: Path | None) -> Path | None:
    if file and config:
        raise click.BadParameter("give the file once", param_hint="--config")
    return file or config


def _options(listen: str | None, db: str | None, web: str | None = None) -> dict[str, str]:
    """Returns those options that override the configuration."""
    return {name: value for name, value in (("--listen", listen), ("--db", db), ("--web", web)) if value}


@app.command()
@_database
@click.option("--fix", is_flag=True, help="Repair what can be recomputed, after a copy of the file.")
@click.option("--rebuild-search", is_flag=True, help="Let the next start index all messages anew.")
@_json
def doctor(file: Path, fix: bool, rebuild_search: bool, as_json: bool) -> None:
    """Examine a database, also of a running server. Exit code 0: nothing is wrong; 1: something is; 2: unusable."""
    from turnwire.cli.doctor import run_doctor

    sys.exit(run_doctor(file, fix=fix, rebuilds_search=rebuild_search, as_json=as_json))


@app.command()
@_database
@click.argument("to", type=_PATH)
@click.option("--replace", is_flag=True, help="Replace the file if it exists.")
@_json
def backup(file: Path, to: Path, replace: bool, as_json: bool) -> None:
    """Copy a database to one file and verify the copy, also while its server runs."""
    from turnwire.cli.backup import run_backup

    sys.exit(run_backup(file, to, replace=replace, as_json=as_json))


@app.command()
@_database
@_json
def compact(file: Path, as_json: bool) -> None:
    """Give the free space in a database back to the disk, while no server has it open. Needs as much free space."""
    from turnwire.cli.backup import run_compact

    sys.exit(run_compact(file, as_json=as_json))


@app.command()
@click.option("--to", required=True, help="postgresql://USER@HOST/DATABASE without tables, or a file to be made.")
@_config
@click.option("--db", help="Move this SQLite file. Default: the database of the configuration.")
@_json
def move(to: str, config: Path | None, db: str | None, as_json: bool) -> None:
    """Move all of a stopped server's database to PostgreSQL or to a file, and compare it (docs/operate/database.md).

    Exit code 0: all was moved; 1: nothing was moved; 2: wrong options or configuration.
    """
    from turnwire.cli.moving import run_move

    sys.exit(run_move(config, os.environ, _options(None, db), to, as_json=as_json))


@app.command("version")
@_json
def versions(as_json: bool) -> None:
    """Print the versions of Turnwire, its formats and what it is built on."""
    from turnwire.cli.versions import run_version

    sys.exit(run_version(as_json=as_json))


@app.command()
@takes_connection
@click.option(
    "--by",
    default="day,model",
    show_default=True,
    metavar="WORDS",
    help="Group by these: day, model, session, subject.",
)
@click.option("--from", "begin", type=_TIMES, help="Start. Default: the start of the month.")
@click.option("--to", "end", type=_TIMES, help="End, not included. Default: now.")
@click.option("--time-zone", default="", help="Time zone of days and times, such as Europe/Berlin. Default: UTC.")
@_json
def usage(  # noqa: PLR0917 - click passes names
    connection: Endpoint,
    by: str,
    begin: datetime | None,
    end: datetime | None,
    time_zone: str,
    as_json: bool,
) -> None:
    """Show what a tenant has used: turns, steps, tokens, cost."""
    from zoneinfo import ZoneInfo

    from turnwire.cli.accounts import show_usage

    group_by = [word for word in by.replace(",", " ").split() if word]
    if wrong := [word for word in group_by if word not in _DIMENSIONS or group_by.count(word) > 1]:
        raise click.BadParameter(f"{wrong[0]!r}: each of {', '.join(_DIMENSIONS)} at most once", param_hint="--by")
    try:
        ZoneInfo(time_zone or "UTC")
    except (ValueError, OSError, LookupError):
        raise click.BadParameter(f"{time_zone!r} is not a known time zone", param_hint="--time-zone") from None
    sys.exit(show_usage(connection, group_by, begin, end, time_zone, as_json=as_json))


@app.command()
@takes_connection
@_json
def quotas(connection: Endpoint, as_json: bool) -> None:
    """Show what a tenant may have and use, and what is left of it."""
    from turnwire.cli.accounts import show_quotas

    sys.exit(show_quotas(connection, as_json=as_json))


@app.command()
@takes_connection
@click.argument("sessions", nargs=-1)
@click.option("-o", "--output", type=_PATH, help="The file to write. Default: standard output.")
@click.option(
    "--format",
    "format_name",
    default="",
    help="openai or opencode. Default: Turnwire's own format, which loses nothing.",
)
@click.option("--files/--no-files", default=True, show_default=True, help="Whether to write the bytes of files.")
@_json
def export(  # noqa: PLR0917 - click passes names
    connection: Endpoint,
    sessions: tuple[str, ...],
    output: Path | None,
    format_name: str,
    files: bool,
    as_json: bool,
) -> None:
    """Write sessions of a running server into an archive (docs/reference/archive.md). SESSIONS are ids; by default all.

    Exit code 0: done; 1: it failed, and the file is as it was; 2: wrong options.
    """
    from turnwire.cli.exporting import ExportOptions, run_export

    if as_json and output is None:
        raise click.BadParameter("needs --output: the archive goes to standard output", param_hint="--json")
    wanted = ExportOptions(session_ids=sessions, format=format_name, include_files=files, target=output)
    sys.exit(run_export(connection, wanted, as_json=as_json))


@app.command("import")
@takes_connection
@click.argument("file")
@click.option(
    "--format",
    "format_name",
    default="",
    help="chatgpt, claude, openai or opencode. Default: Turnwire's own format.",
)
@click.option("--dry-run", is_flag=True, help="Check and report everything, and store nothing.")
@click.option("--verify", is_flag=True, help="Compare with what the server has, and store nothing.")
@click.option("--option", multiple=True, metavar="NAME=VALUE", help="Option of the format; may be repeated.")
@_json
def import_(  # noqa: PLR0917 - click passes names
    connection: Endpoint,
    file: str,
    format_name: str,
    dry_run: bool,
    verify: bool,
    option: tuple[str, ...],
    as_json: bool,
) -> None:
    """Store the sessions of an archive on a running server, or what came since (docs/reference/archive.md).

    FILE is the archive; - for standard input.

    Exit code 0: done; 1: it failed, or the server lacks something of the archive; 2: wrong options or no such file.
    """
    from turnwire.cli.importing import ImportOptions, run_import

    given = [one.partition("=") for one in option]
    if any(not name or not equals for name, equals, _ in given):
        raise click.BadParameter("must be of the form NAME=VALUE", param_hint="--option")
    options = {name: value for name, _, value in given}
    source = None if file == "-" else Path(file)
    wanted = ImportOptions(source=source, format=format_name, options=options, dry_run=dry_run, verify=verify)
    sys.exit(run_import(connection, wanted, as_json=as_json))
