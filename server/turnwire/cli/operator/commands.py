"""The commands of an operator and their options; docs/operations.md has their exit codes and the shape of `--json`."""

# ruff: noqa: PLC0415 - each command imports its work when it runs; see the package `turnwire.cli`

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="Configuration file. Default: $TURNWIRE_CONFIG, else ./turnwire.toml.")
]
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
    app.command("version")(_version)


def _config_check(config: ConfigFile = None, listen: Listen = None, db: Db = None, as_json: Json = False) -> None:
    """Name every problem of the configuration. Exit code 0: it is valid; 2: it is not."""
    import os

    from turnwire.cli.operator.configuration import run_check

    raise typer.Exit(run_check(config, os.environ, _options(listen, db), as_json=as_json))


def _config_show(config: ConfigFile = None, listen: Listen = None, db: Db = None, as_json: Json = False) -> None:
    """Print the configuration that is in effect as TOML, with the source of each value. Secrets are masked."""
    import os

    from turnwire.cli.operator.configuration import run_show

    raise typer.Exit(run_show(config, os.environ, _options(listen, db), as_json=as_json))


def _options(listen: str | None, db: str | None) -> dict[str, str]:
    return {name: value for name, value in (("--listen", listen), ("--db", db)) if value}


def _doctor(
    file: Database,
    fix: Annotated[
        bool, typer.Option("--fix", help="Repair what can be recomputed, after a copy of the file.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Examine a database, also of a running server. Exit code 0: nothing is wrong; 1: something is; 2: unusable."""
    from turnwire.cli.operator.doctor import run_doctor

    raise typer.Exit(run_doctor(file, fix=fix, as_json=as_json))


def _backup(
    file: Database,
    to: Annotated[Path, typer.Argument(metavar="TO", help="The file to make.", show_default=False)],
    replace: Annotated[bool, typer.Option("--replace", help="Replace the file if it exists.")] = False,
    as_json: Json = False,
) -> None:
    """Copy a database to one file and verify the copy, also while its server runs."""
    from turnwire.cli.operator.backup import run_backup

    raise typer.Exit(run_backup(file, to, replace=replace, as_json=as_json))


def _version(as_json: Json = False) -> None:
    """Print the versions of Turnwire, its formats and what it is built on."""
    from turnwire.cli.operator.versions import run_version

    raise typer.Exit(run_version(as_json=as_json))
