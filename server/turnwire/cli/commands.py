"""The commands and their options.

Exit codes: 0 success, 1 failure (one line on stderr says why), 2 wrong options or configuration.
"""

# ruff: noqa: PLC0415 - each command imports its work when it runs; see the package's docstring

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnwire.cli.connection import Connection, takes_connection
from turnwire.cli.moving.commands import add_moving_commands
from turnwire.cli.operator.commands import add_commands

if TYPE_CHECKING:
    from turnwire.cli.tokens import TokenCommands

app = typer.Typer(
    help="A conversation server for AI frontends: gRPC on one side, models on the other.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        from turnwire import __version__

        typer.echo(f"turnwire {__version__}")
        raise typer.Exit


@app.command()
def serve(
    config: Annotated[
        Path | None, typer.Option(help="Configuration file. Default: $TURNWIRE_CONFIG, else ./turnwire.toml if there.")
    ] = None,
    listen: Annotated[str | None, typer.Option(help="Address to serve on, such as 127.0.0.1:50051.")] = None,
    db: Annotated[str | None, typer.Option(help="The SQLite file.")] = None,
    web: Annotated[
        str | None, typer.Option(help="Address of the console and of calls over HTTP, such as 127.0.0.1:8080.")
    ] = None,
) -> None:
    """Run the server until SIGTERM or Ctrl-C."""
    import gc
    import os
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

    options = {name: value for name, value in (("--listen", listen), ("--db", db), ("--web", web)) if value}
    code = run_server(config, os.environ, options)
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


tokens = typer.Typer(
    help="Create, list and revoke the tokens of callers, also while the server runs.", no_args_is_help=True
)
app.add_typer(tokens, name="token")

_ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="The server's configuration. Default: as for `turnwire serve`.")
]
_DbOption = Annotated[str | None, typer.Option("--db", help="The server's SQLite file.")]
_JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@tokens.command("create")
def create_token(
    *,
    subject: Annotated[str, typer.Option(help="Who uses the token.")],
    tenant: Annotated[str, typer.Option(help="Whose data it opens.")] = "default",
    role: Annotated[str, typer.Option(help="reader, writer or admin.")] = "writer",
    expires: Annotated[str, typer.Option(help="How long it is valid: 90d, 12h, 30m or never.")] = "90d",
    config: _ConfigOption = None,
    db: _DbOption = None,
    as_json: _JsonOption = False,
) -> None:
    """Create a token and print it. It is stored as a hash, so this is the only time that it can be read."""
    raise typer.Exit(_token_commands(config, db, as_json).create(tenant, subject, role, expires))


@tokens.command("list")
def list_tokens(config: _ConfigOption = None, db: _DbOption = None, as_json: _JsonOption = False) -> None:
    """List all tokens with their ids, revoked and expired ones too. The tokens themselves are not stored."""
    raise typer.Exit(_token_commands(config, db, as_json).list())


@tokens.command("revoke")
def revoke_token(
    token_id: Annotated[str, typer.Argument(help="Id of the token, as `turnwire token list` shows it.")],
    config: _ConfigOption = None,
    db: _DbOption = None,
    as_json: _JsonOption = False,
) -> None:
    """Revoke a token. A running server refuses it within about a second."""
    raise typer.Exit(_token_commands(config, db, as_json).revoke(token_id))


def _token_commands(config: Path | None, db: str | None, as_json: bool) -> "TokenCommands":
    import os

    from turnwire.cli.tokens import TokenCommands

    return TokenCommands(config, os.environ, {"--db": db} if db else {}, as_json=as_json)


add_commands(app)
add_moving_commands(app)
