"""The command line: `turnwire serve`, `turnwire demo`, `turnwire chat`, `turnwire health`.

`commands` declares the commands and their options. The work of each is in a module of its own, imported when it runs,
so `turnwire --help` does not wait for gRPC and SQLite. Commands that talk to a server use the generated stubs, as any
client does. `operator` has the commands of an operator, `moving`
those that bring conversations in from other systems. Only this package and `turnwire.app` read the process's
environment.
"""


def main() -> None:
    """Runs the command that the arguments name and exits with its code."""
    from turnwire.cli.commands import app  # noqa: PLC0415 - keeps `import turnwire.cli` free of the command line's parser

    app(prog_name="turnwire")
