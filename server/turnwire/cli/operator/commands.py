"""The commands of an operator and their options; docs/operations.md has their exit codes and the shape of `--json`."""

# ruff: noqa: PLC0415 - each command imports its work when it runs; see the package `turnwire.cli`

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Database = Annotated[Path, typer.Argument(metavar="FILE", help="The database file.", show_default=False)]


def add_commands(app: typer.Typer) -> None:
    """Adds the commands to those of `turnwire`."""
    app.command("doctor")(_doctor)
    app.command("backup")(_backup)
    app.command("version")(_version)


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
