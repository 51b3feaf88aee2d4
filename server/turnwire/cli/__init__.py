"""The command line: `turnwire serve`, `turnwire demo`, `turnwire chat`.

`commands` declares the commands and their options; each one's work is a module of its own, imported when it runs, so
that `turnwire --help` need not wait for gRPC and SQLite. The commands that talk to a server do so as any client does,
through the generated stubs. This package and `turnwire.app` alone read the process's environment.
"""


def main() -> None:
    """Runs the command that the arguments name and exits with its code."""
    from turnwire.cli.commands import app  # noqa: PLC0415 - keeps `import turnwire.cli` free of the command line's parser

    app(prog_name="turnwire")
