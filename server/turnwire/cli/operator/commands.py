"""The commands of an operator and their options; docs/operations.md has their exit codes and the shape of `--json`."""

# ruff: noqa: PLC0415 - each command imports its work when it runs; see the package `turnwire.cli`

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from turnwire.cli.connection import Connection, takes_connection

_TIMES = ["%Y-%m-%d", "%Y-%m-%dT%H:%M"]
_DIMENSIONS = ("day", "model", "session", "subject")

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="Configuration file. Default: $TURNWIRE_CONFIG, else ./turnwire.toml.")
]
GivenFile = Annotated[Path | None, typer.Argument(metavar="[FILE]", help="The same as --config.", show_default=False)]
Listen = Annotated[str | None, typer.Option(help="As for `turnwire serve`.")]
Db = Annotated[str | None, typer.Option(help="As for `turnwire serve`.")]
Database = Annotated[Path, typer.Argument(metavar="FILE", help="The database file.", show_default=False)]


def add_commands(app: typer.Typer) -> None:
    """Adds the commands to those of `turnwire`."""
    config = typer.Typer(help="Check the configuration, or show what is in effect.", no_args_is_help=True)
    config.command("check")(_config_check)
    config.command("show")(_config_show)
    app.add_typer(config, name="config")
    app.command("doctor")(_doctor)
    app.command("backup")(_backup)
    app.command("compact")(_compact)
    app.command("version")(_version)
    app.command("usage")(_usage)
    app.command("quotas")(_quotas)


def _config_check(
    file: GivenFile = None, config: ConfigFile = None, listen: Listen = None, db: Db = None, as_json: Json = False
) -> None:
    """Name every problem of the configuration. Exit code 0: it is valid; 2: it is not."""
    import os

    from turnwire.cli.operator.configuration import run_check

    raise typer.Exit(run_check(_one_file(file, config), os.environ, _options(listen, db), as_json=as_json))


def _config_show(
    file: GivenFile = None, config: ConfigFile = None, listen: Listen = None, db: Db = None, as_json: Json = False
) -> None:
    """Print the configuration that is in effect as TOML, with the source of each value. Secrets are masked."""
    import os

    from turnwire.cli.operator.configuration import run_show

    raise typer.Exit(run_show(_one_file(file, config), os.environ, _options(listen, db), as_json=as_json))


def _one_file(file: Path | None, config: Path | None) -> Path | None:
    if file and config:
        raise typer.BadParameter("give the file once", param_hint="--config")
    return file or config


def _options(listen: str | None, db: str | None) -> dict[str, str]:
    return {name: value for name, value in (("--listen", listen), ("--db", db)) if value}


def _doctor(
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
    from turnwire.cli.operator.doctor import run_doctor

    raise typer.Exit(run_doctor(file, fix=fix, rebuilds_search=rebuild_search, as_json=as_json))


def _backup(
    file: Database,
    to: Annotated[Path, typer.Argument(metavar="TO", help="The file to make.", show_default=False)],
    replace: Annotated[bool, typer.Option("--replace", help="Replace the file if it exists.")] = False,
    as_json: Json = False,
) -> None:
    """Copy a database to one file and verify the copy, also while its server runs."""
    from turnwire.cli.operator.backup import run_backup

    raise typer.Exit(run_backup(file, to, replace=replace, as_json=as_json))


def _compact(file: Database, as_json: Json = False) -> None:
    """Give the free space in a database back to the disk, while no server has it open. Needs as much free space."""
    from turnwire.cli.operator.backup import run_compact

    raise typer.Exit(run_compact(file, as_json=as_json))


def _version(as_json: Json = False) -> None:
    """Print the versions of Turnwire, its formats and what it is built on."""
    from turnwire.cli.operator.versions import run_version

    raise typer.Exit(run_version(as_json=as_json))


@takes_connection
def _usage(
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

    from turnwire.cli.operator.accounts import show_usage

    group_by = [word for word in by.replace(",", " ").split() if word]
    if wrong := [word for word in group_by if word not in _DIMENSIONS or group_by.count(word) > 1]:
        raise typer.BadParameter(f"{wrong[0]!r}: each of {', '.join(_DIMENSIONS)} at most once", param_hint="--by")
    try:
        ZoneInfo(time_zone or "UTC")
    except (ValueError, OSError, LookupError):
        raise typer.BadParameter(f"this machine knows no {time_zone!r}", param_hint="--time-zone") from None
    raise typer.Exit(show_usage(connection, group_by, begin, end, time_zone, as_json=as_json))


@takes_connection
def _quotas(*, connection: Connection, as_json: Json = False) -> None:
    """Show what a tenant may have and use, and what is left of it."""
    from turnwire.cli.operator.accounts import show_quotas

    raise typer.Exit(show_quotas(connection, as_json=as_json))
