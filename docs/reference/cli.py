"""The reference of the command line, made of the commands themselves, for the site of `make docs`."""

from collections.abc import Iterator

import click

from turnwire.cli.commands import app

_INTRODUCTION = """\
# The command line

`turnwire COMMAND --help` says the same. [Operating](../operate/operations.md#start-stop-exit-codes) has the exit codes.
"""


def command_line() -> str:
    """Returns the page."""
    return _INTRODUCTION + "".join(_commands(app, "turnwire"))


def _commands(group: click.Group, path: str) -> Iterator[str]:
    for name, command in sorted(group.commands.items()):
        if isinstance(command, click.Group):
            yield from _commands(command, f"{path} {name}")
        elif not command.hidden:
            yield _command(command, f"{path} {name}")


def _command(command: click.Command, path: str) -> str:
    context = click.Context(command, info_name=path)
    usage = " ".join(command.collect_usage_pieces(context))
    options = [option for option in command.get_params(context) if isinstance(option, click.Option)]
    rows = "".join(_row(option) for option in options if "--help" not in option.opts and not option.hidden)
    table = f"\n| option | variable | |\n|---|---|---|\n{rows}" if rows else ""
    return f"\n## {path}\n\n`{path} {usage}`\n\n{_text(command.help or '')}\n{table}"


def _row(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    variable = f"`{option.envvar}`" if isinstance(option.envvar, str) else ""
    return f"| {names} | {variable} | {_text(option.help or '').replace('|', chr(92) + '|')} |\n"


def _text(words: str) -> str:
    """Returns help as Markdown in which nothing is markup."""
    return " ".join(words.replace("\b", "").split()).replace("<", "\\<").replace("*", "\\*").replace("_", "\\_")
