"""The commands that move conversations, and their options; docs/migrating.md walks through them."""

# ruff: noqa: PLC0415 - each command imports its work when it runs; see the package `turnwire.cli`

from pathlib import Path
from typing import Annotated

import typer

from turnwire.cli.connection import Connection, takes_connection

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


def add_moving_commands(app: typer.Typer) -> None:
    """Adds the commands to those of `turnwire`."""
    migrate = typer.Typer(help="Bring files of other message systems into a new form.", no_args_is_help=True)
    migrate.callback()(lambda: None)  # so that the name of a system stays a command of its own
    migrate.command("pynchy")(_migrate_pynchy)
    app.add_typer(migrate, name="migrate")
    app.command("export")(_export)
    app.command("import")(_import)


@takes_connection
def _migrate_pynchy(
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
        from turnwire.cli.moving.pynchy_archive import ArchiveWishes, import_archive

        asked = ArchiveWishes(rules=rules, target=None, verify=verify)
        raise typer.Exit(import_archive(file, asked, connection, dry_run=dry_run, as_json=as_json))
    if to:
        from turnwire.cli.moving.pynchy_archive import ArchiveWishes, run_archive

        asked = ArchiveWishes(rules=rules, target=None if dry_run else to, verify=verify)
        raise typer.Exit(run_archive(file, asked, as_json=as_json))
    from turnwire.cli.moving.pynchy import Wishes, run_migration

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


@takes_connection
def _export(
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
    from turnwire.cli.moving.exporting import Wanted, run_export

    if as_json and output is None:
        raise typer.BadParameter("needs --output: the archive goes to standard output", param_hint="--json")
    ids = tuple(sessions or ())
    wanted = Wanted(session_ids=ids, format=format_name, include_files=files, target=output)
    raise typer.Exit(run_export(connection, wanted, as_json=as_json))


@takes_connection
def _import(
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
    from turnwire.cli.moving.importing import Wanted, run_import

    given = [one.partition("=") for one in option or ()]
    if any(not name or not equals for name, equals, _ in given):
        raise typer.BadParameter("must be of the form NAME=VALUE", param_hint="--option")
    options = {name: value for name, _, value in given}
    source = None if file == "-" else Path(file)
    wanted = Wanted(source=source, format=format_name, options=options, dry_run=dry_run, verify=verify)
    raise typer.Exit(run_import(connection, wanted, as_json=as_json))
