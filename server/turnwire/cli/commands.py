"""The commands and their options; docs/operations.md has their exit codes and the shape of `--json`.

Exit codes: 0 success, 1 failure (one line on stderr says why), 2 wrong options or configuration.
"""

# ruff: noqa: PLC0415 - each command imports its work when it runs; see the package's docstring

import os
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnwire.cli.connection import Connection, takes_connection

if TYPE_CHECKING:
    from turnwire.cli.tokens import TokenCommands

_TIMES = ["%Y-%m-%d", "%Y-%m-%dT%H:%M"]
_DIMENSIONS = ("day", "model", "session", "subject")

_CONFIG_HELP = "Configuration file. Default: $TURNWIRE_CONFIG, else ./turnwire.toml if there."
Config = Annotated[Path | None, typer.Option(help=_CONFIG_HELP)]
Listen = Annotated[str | None, typer.Option(help="Address to serve on, such as 127.0.0.1:50051.")]
Db = Annotated[str | None, typer.Option(help="The server's SQLite file.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
GivenConfig = Annotated[Path | None, typer.Argument(metavar="[FILE]", help="The same as --config.", show_default=False)]
Database = Annotated[Path, typer.Argument(metavar="FILE", help="The database file.", show_default=False)]

app = typer.Typer(
    help="A conversation server for AI frontends: gRPC on one side, models on the other.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
config_commands = typer.Typer(help="Check the configuration, or show what is in effect.", no_args_is_help=True)
app.add_typer(config_commands, name="config")
token_commands = typer.Typer(
    help="Create, list and revoke the tokens of callers, also while the server runs.", no_args_is_help=True
)
app.add_typer(token_commands, name="token")
migrate_commands = typer.Typer(help="Bring files of other message systems into a new form.", no_args_is_help=True)
migrate_commands.callback()(lambda: None)  # so that the name of a system stays a command of its own
app.add_typer(migrate_commands, name="migrate")


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        from turnwire import __version__

        typer.echo(f"turnwire {__version__}")
        raise typer.Exit


@app.command()
def serve(
    config: Config = None,
    listen: Listen = None,
    db: Db = None,
    web: Annotated[
        str | None, typer.Option(help="Address of the console and of calls over HTTP, such as 127.0.0.1:8080.")
    ] = None,
) -> None:
    """Run the server until SIGTERM or Ctrl-C."""
    import gc
    import sys

    gc.disable()  # a start makes a million objects that stay; the server switches it on again when it listens
    # Otherwise gRPC's core adds its own lines to the one that says why the server cannot start.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # uvloop starts MCP servers with fork(). gRPC would stop its threads for that, needlessly: the child execs at once.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

    # Where rich is installed, structlog imports it for tracebacks that a server does not draw: a tenth of a start.
    sys.modules["rich"] = None  # type: ignore[assignment]
    import structlog  # noqa: F401

    del sys.modules["rich"]
    from turnwire.cli.serve import run_server

    code = run_server(config, os.environ, _options(listen, db, web))
    # All is stored and closed. The end of the interpreter would look at all objects once more, for up to a second, and
    # free what belongs to gRPC after its core is gone: now and then a stop ended with SIGSEGV.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@app.command()
def demo() -> None:
    """Show a whole conversation: a server, a client, a streamed answer. Needs no key and no network."""
    from turnwire.cli.demo import run_demo

    raise typer.Exit(run_demo())


@app.command()
@takes_connection
def chat(
    *,
    connection: Connection,
    words: Annotated[
        list[str] | None, typer.Argument(help="Message to send. Default: standard input if it is piped, else a prompt.")
    ] = None,
    session: Annotated[str, typer.Option(help="Session to continue. Default: a new one.")] = "",
    model: Annotated[str, typer.Option(help="PROVIDER/MODEL. Default: the session's or the server's.")] = "",
) -> None:
    """Talk to a model through a running server. Ctrl-C ends the answer, Ctrl-D the chat."""
    from turnwire.cli.chat.prompt import run_chat

    if model and not all(model.partition("/")):
        raise typer.BadParameter("must be of the form PROVIDER/MODEL", param_hint="--model")
    raise typer.Exit(run_chat(connection, session, model, " ".join(words or ())))


@app.command()
@takes_connection
def health(
    *,
    connection: Connection,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for the answer.", min=0.1)] = 5.0,
) -> None:
    """Ask a running server whether it serves. Exits with 0 if it does and 1 if not: for health checks and scripts."""
    from turnwire.cli.health import run_health

    raise typer.Exit(run_health(connection, timeout))


@token_commands.command("create")
def create_token(
    *,
    subject: Annotated[str, typer.Option(help="Who uses the token.")],
    tenant: Annotated[str, typer.Option(help="Whose data it opens.")] = "default",
    role: Annotated[str, typer.Option(help="reader, writer or admin.")] = "writer",
    expires: Annotated[str, typer.Option(help="How long it is valid: 90d, 12h, 30m or never.")] = "90d",
    config: Config = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Create a token and print it. It is stored as a hash, so this is the only time that it can be read."""
    raise typer.Exit(_token_commands(config, db, as_json).create(tenant, subject, role, expires))


@token_commands.command("list")
def list_tokens(config: Config = None, db: Db = None, as_json: Json = False) -> None:
    """List all tokens with their ids, revoked and expired ones too. The tokens themselves are not stored."""
    raise typer.Exit(_token_commands(config, db, as_json).list())


@token_commands.command("revoke")
def revoke_token(
    token_id: Annotated[str, typer.Argument(help="Id of the token, as `turnwire token list` shows it.")],
    config: Config = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Revoke a token. A running server refuses it within about a second."""
    raise typer.Exit(_token_commands(config, db, as_json).revoke(token_id))


def _token_commands(config: Path | None, db: str | None, as_json: bool) -> "TokenCommands":
    from turnwire.cli.tokens import TokenCommands

    return TokenCommands(config, os.environ, _options(None, db), as_json=as_json)


@config_commands.command("check")
def config_check(
    file: GivenConfig = None, config: Config = None, listen: Listen = None, db: Db = None, as_json: Json = False
) -> None:
    """Name every problem of the configuration. Exit code 0: it is valid; 2: it is not."""
    from turnwire.cli.configuration import run_check

    raise typer.Exit(run_check(_one_file(file, config), os.environ, _options(listen, db), as_json=as_json))


@config_commands.command("show")
def config_show(
    file: GivenConfig = None, config: Config = None, listen: Listen = None, db: Db = None, as_json: Json = False
) -> None:
    """Print the configuration that is in effect as TOML, with the source of each value. Secrets are masked."""
    from turnwire.cli.configuration import run_show

    raise typer.Exit(run_show(_one_file(file, config), os.environ, _options(listen, db), as_json=as_json))


def _one_file(file: Path | None, config: Path | None) -> Path | None:
    if file and config:
        raise typer.BadParameter("give the file once", param_hint="--config")
    return file or config


def _options(listen: str | None, db: str | None, web: str | None = None) -> dict[str, str]:
    """Returns those options that override the configuration."""
    return {name: value for name, value in (("--listen", listen), ("--db", db), ("--web", web)) if value}


@app.command()
def doctor(
    file: Database,
    fix: Annotated[
        bool, typer.Option("--fix", help="Repair what can be recomputed, after a copy of the file.")
    ] = False,
    rebuild_search: Annotated[
        bool, typer.Option("--rebuild-search", help="Let the next start index all messages anew.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Examine a database, also of a running server. Exit code 0: nothing is wrong; 1: something is; 2: unusable."""
    from turnwire.cli.doctor import run_doctor

    raise typer.Exit(run_doctor(file, fix=fix, rebuilds_search=rebuild_search, as_json=as_json))


@app.command()
def backup(
    file: Database,
    to: Annotated[Path, typer.Argument(metavar="TO", help="The file to make.", show_default=False)],
    replace: Annotated[bool, typer.Option("--replace", help="Replace the file if it exists.")] = False,
    as_json: Json = False,
) -> None:
    """Copy a database to one file and verify the copy, also while its server runs."""
    from turnwire.cli.backup import run_backup

    raise typer.Exit(run_backup(file, to, replace=replace, as_json=as_json))


@app.command()
def compact(file: Database, as_json: Json = False) -> None:
    """Give the free space in a database back to the disk, while no server has it open. Needs as much free space."""
    from turnwire.cli.backup import run_compact

    raise typer.Exit(run_compact(file, as_json=as_json))


@app.command("version")
def versions(as_json: Json = False) -> None:
    """Print the versions of Turnwire, its formats and what it is built on."""
    from turnwire.cli.versions import run_version

    raise typer.Exit(run_version(as_json=as_json))


@app.command()
@takes_connection
def usage(
    *,
    connection: Connection,
    by: Annotated[
        str, typer.Option("--by", metavar="WORDS", help="Group by these: day, model, session, subject.")
    ] = "day,model",
    begin: Annotated[
        datetime | None, typer.Option("--from", help="Beginning. Default: of the month.", formats=_TIMES)
    ] = None,
    end: Annotated[
        datetime | None, typer.Option("--to", help="End, not included. Default: now.", formats=_TIMES)
    ] = None,
    time_zone: Annotated[str, typer.Option(help="Of days and times, such as Europe/Berlin. Default: UTC.")] = "",
    as_json: Json = False,
) -> None:
    """Show what a tenant has used: turns, steps, tokens, cost."""
    from zoneinfo import ZoneInfo

    from turnwire.cli.accounts import show_usage

    group_by = [word for word in by.replace(",", " ").split() if word]
    if wrong := [word for word in group_by if word not in _DIMENSIONS or group_by.count(word) > 1]:
        raise typer.BadParameter(f"{wrong[0]!r}: each of {', '.join(_DIMENSIONS)} at most once", param_hint="--by")
    try:
        ZoneInfo(time_zone or "UTC")
    except (ValueError, OSError, LookupError):
        raise typer.BadParameter(f"this machine knows no {time_zone!r}", param_hint="--time-zone") from None
    raise typer.Exit(show_usage(connection, group_by, begin, end, time_zone, as_json=as_json))


@app.command()
@takes_connection
def quotas(*, connection: Connection, as_json: Json = False) -> None:
    """Show what a tenant may have and use, and what is left of it."""
    from turnwire.cli.accounts import show_quotas

    raise typer.Exit(show_quotas(connection, as_json=as_json))


@migrate_commands.command("pynchy")
@takes_connection
def migrate_pynchy(
    *,
    connection: Connection,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The SQLite file of pynchy.", show_default=False)],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would change, and write nothing.")] = False,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Prove that types were added as the rules say, and nothing else changed; with --import, that the"
            " server has all.",
        ),
    ] = False,
    reclassify: Annotated[
        bool, typer.Option("--reclassify", help="Give notices and traces the type that fits them instead of user.")
    ] = False,
    bot_name: Annotated[
        list[str] | None, typer.Option(help="A name of the assistant besides `bot`; may be repeated.")
    ] = None,
    backup: Annotated[
        Path | None, typer.Option(help="Where to copy the file before. Default: beside it, named after the time.")
    ] = None,
    to: Annotated[
        Path | None, typer.Option(help="Write the chats as an archive for `turnwire import`; the file is only read.")
    ] = None,
    imports: Annotated[
        bool, typer.Option("--import", help="Store the chats on a running server; the file is only read.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Add a type to every message of a pynchy file, in place, also while pynchy runs; see docs/migrating.md.

    With --to, write an archive instead; with --import, store the chats as sessions on a running server. Exit code 0:
    done; 1: something is not as it should be; 2: the file cannot be migrated.
    """
    from turnwire.interop.pynchy.migration import Rules

    _check_pynchy(to, backup, imports=imports, dry_run=dry_run, proves=verify and not imports)
    rules = Rules(bot_names=frozenset(bot_name or ()), reclassify=reclassify)
    if imports:
        from turnwire.cli.pynchy_archive import ArchiveWishes, import_archive

        asked = ArchiveWishes(rules=rules, target=None, verify=verify)
        raise typer.Exit(import_archive(file, asked, connection, dry_run=dry_run, as_json=as_json))
    if to:
        from turnwire.cli.pynchy_archive import ArchiveWishes, run_archive

        asked = ArchiveWishes(rules=rules, target=None if dry_run else to, verify=verify)
        raise typer.Exit(run_archive(file, asked, as_json=as_json))
    from turnwire.cli.pynchy import Wishes, run_migration

    wishes = Wishes(rules=rules, backup=backup, dry_run=dry_run, verify=verify)
    raise typer.Exit(run_migration(file, wishes, as_json=as_json))


def _check_pynchy(to: Path | None, backup: Path | None, *, imports: bool, dry_run: bool, proves: bool) -> None:
    """Refuses options that do not go together."""
    if dry_run and (backup or proves):
        raise typer.BadParameter("writes nothing, so there is nothing to verify and no backup", param_hint="--dry-run")
    if (to or imports) and backup:
        raise typer.BadParameter("is for a migration in place: else the file is only read", param_hint="--backup")
    if to and imports:
        text = "go without each other: `turnwire import` takes the archive"
        raise typer.BadParameter(text, param_hint="--to, --import")


@app.command()
@takes_connection
def export(
    *,
    connection: Connection,
    sessions: Annotated[
        list[str] | None, typer.Argument(metavar="[SESSION]...", help="Ids of sessions. Default: all.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The file to write. Default: standard output.")
    ] = None,
    format_name: Annotated[
        str,
        typer.Option("--format", help="openai or opencode. Default: Turnwire's own format, which loses nothing."),
    ] = "",
    files: Annotated[bool, typer.Option("--files/--no-files", help="Whether to write the bytes of files.")] = True,
    as_json: Json = False,
) -> None:
    """Write sessions of a running server into an archive; see docs/archive.md.

    Exit code 0: done; 1: it failed, and the file is as it was; 2: wrong options.
    """
    from turnwire.cli.exporting import Wanted, run_export

    if as_json and output is None:
        raise typer.BadParameter("needs --output: the archive goes to standard output", param_hint="--json")
    ids = tuple(sessions or ())
    wanted = Wanted(session_ids=ids, format=format_name, include_files=files, target=output)
    raise typer.Exit(run_export(connection, wanted, as_json=as_json))


@app.command("import")
@takes_connection
def import_(
    *,
    connection: Connection,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The archive; - for standard input.", show_default=False)],
    format_name: Annotated[
        str,
        typer.Option("--format", help="chatgpt, claude, ikigai, openai or opencode. Default: Turnwire's own format."),
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything and tell, and store nothing.")] = False,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Compare with what the server has, and store nothing."),
    ] = False,
    option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="What the format wants to know; may be repeated.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Store the sessions of an archive on a running server, or what came since it was imported; see docs/archive.md.

    Exit code 0: done; 1: it failed, or the server lacks something of the archive; 2: wrong options or no such file.
    """
    from turnwire.cli.importing import Wanted, run_import

    given = [one.partition("=") for one in option or ()]
    if any(not name or not equals for name, equals, _ in given):
        raise typer.BadParameter("must be of the form NAME=VALUE", param_hint="--option")
    options = {name: value for name, _, value in given}
    source = None if file == "-" else Path(file)
    wanted = Wanted(source=source, format=format_name, options=options, dry_run=dry_run, verify=verify)
    raise typer.Exit(run_import(connection, wanted, as_json=as_json))
