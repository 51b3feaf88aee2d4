"""`turnwire serve`: runs the server until it is asked to stop."""

import asyncio
import contextlib
import gc
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path

import structlog

from turnwire.app import Server, create_server
from turnwire.config import Config, ConfigError, load_config
from turnwire.config.review.secrets import Masking
from turnwire.domain.errors import DomainError
from turnwire.event_loop.fair_loop import fair_loop
from turnwire.telemetry.logs.output import LogOutput
from turnwire.telemetry.logs.setup import configure_logging
from turnwire.telemetry.readings import Readings

MAX_SHARED_THREADS = 32
"""Maximum threads for blocking work without threads of its own: name look-ups, spools, conversions of large
requests."""

SHORT_GRACE_SECONDS = 10.0
"""Grace of a stop up to which the garbage of calls takes little memory."""

SWITCH_SECONDS = 0.0005
"""Wait of a thread that wants the interpreter: shorter than a turn of the loop, after which it would wait anew."""

log = structlog.get_logger()


def run_server(
    path: Path | None,
    environ: Mapping[str, str],
    options: Mapping[str, str],
    adapt: Callable[[Config], Config] = lambda config: config,
    *,
    shares_ports: bool = False,
) -> int:
    """Serves until SIGTERM or SIGINT, then shuts down cleanly.

    Args:
        path: The configuration file; None looks for one.
        environ: The process's environment.
        options: Options that override file and environment; see `turnwire.config.load_config`.
        adapt: Returns the configuration of this process; raises ConfigError.
        shares_ports: Whether other processes listen on the same addresses.

    Returns:
        The exit code: 0 after a clean stop, 1 when the server could not start or continue, 2 for a wrong configuration.
    """
    if is_reloaded_by_hangup():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is a handler; what it would read is read now anyway

    def read() -> Config:
        return adapt(load_config(path, environ, options))

    try:
        config = read()
    except ConfigError as error:
        print(f"turnwire: {error}", file=sys.stderr)
        return 2
    output = LogOutput(sys.stderr.fileno())
    configure_logging(config.log.level, config.log.format, output)
    try:
        with asyncio.Runner(loop_factory=fair_loop) as runner:
            return runner.run(
                _serve(create_server(config, environ, shares_ports=shares_ports), config, environ, output, read)
            )
    finally:
        output.close()


async def _serve(
    server: Server, config: Config, environ: Mapping[str, str], output: LogOutput, read: Callable[[], Config]
) -> int:
    stop, reload = _stop_signal(), _reload_signal()
    widen_shared_threads(asyncio.get_running_loop())
    async with AsyncExitStack() as running:
        try:
            await running.enter_async_context(server)
        except (DomainError, OSError, RuntimeError) as error:
            # grpcio raises RuntimeError when the address is in use.
            print(f"turnwire: cannot start: {error}", file=sys.stderr)
            return 1
        _calm_garbage_collection()
        share_interpreter()
        _announce(config, server.address, server.web_address, output)
        notify(environ, "READY=1")
        reloading = asyncio.create_task(_reload_when_asked(server, reload, read, Masking(environ)), name="reloading")
        ended = asyncio.create_task(server.wait_ended())
        await asyncio.wait((ended, stop), return_when=asyncio.FIRST_COMPLETED)
        reloading.cancel()
        notify(environ, "STOPPING=1")
        if config.server.shutdown_grace_seconds <= SHORT_GRACE_SECONDS:
            gc.disable()  # what turns leave is freed without it, and it would look at all that comes instead at once
        began, readings = time.monotonic(), server.readings()
        _log_stopping(stop.result() if stop.done() else "", server.failure, readings)
    log.info(
        "stopped",
        milliseconds=round((time.monotonic() - began) * 1000),
        turns_ended=max(0, readings.running - server.left.running),
        turns_left=server.left.running,
        messages_left=server.left.queued,
    )
    ended.cancel()
    await asyncio.gather(ended, return_exceptions=True)
    return 0 if server.failure is None else 1


def _log_stopping(signal_name: str, failure: DomainError | None, readings: Readings) -> None:
    """Writes why the server stops and what still runs."""
    log.info(
        "stopping",
        signal=signal_name,
        reason="" if failure is None else failure.reason,
        turns_running=readings.running,
        turns_waiting=readings.waiting,
        messages_queued=readings.queued,
        watchers=readings.watchers,
    )


def _calm_garbage_collection() -> None:
    """Begins with collections, which the start did without, and makes full ones rare.

    Thousands of waiting messages and watchers are long-lived and rarely form cycles.

    Measured: a quarter more messages a second with many turns in memory. The others are frequent and small, for each
    holds the event loop: next to 256 answers of a thousand calls those of 10,000 new objects took up to 60 ms of the
    processor. Small calls spend 1.3 % of their time on the processor in them, and 0.8 % with those of 2,000.

    Objects that go count against new ones, also old ones, so thousands of new ones may go unnoticed: where thousands of
    requests ended and others began, collections of 2,000 took up to 120 ms, and those of 300 up to 47. No threshold
    notices code that gives old lists up for as many new ones: 400,000 lists of parts that ended took 300 ms. Such code
    keeps its lists, or has texts.
    """
    gc.freeze()
    gc.set_threshold(300, 4, 40_000)
    gc.enable()


def widen_shared_threads(loop: asyncio.AbstractEventLoop) -> None:
    """Gives the event loop more threads for what blocks than Python does, which is six on two processors.

    Names are looked up there, and a name server that does not answer holds a thread for half a minute. What is long or
    foreign has threads of its own: schemas, and files that callers name.
    """
    loop.set_default_executor(ThreadPoolExecutor(MAX_SHARED_THREADS, thread_name_prefix="shared"))


def share_interpreter() -> None:
    """Lets a thread that wants the interpreter have it after half a millisecond instead of five.

    The event loop runs Python without a pause while a provider floods it. The storage threads then waited five
    milliseconds at each statement.
    """
    sys.setswitchinterval(SWITCH_SECONDS)


def _stop_signal() -> asyncio.Future[str]:
    """Returns a future that SIGTERM or SIGINT resolves with its name. A second signal ends the process at once."""
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[str] = loop.create_future()

    def on_signal(name: str) -> None:
        if not stop.done():
            stop.set_result(name)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number.name)
    return stop


def is_reloaded_by_hangup() -> bool:
    """Returns whether SIGHUP is for the configuration. On a terminal it ends the server: the terminal is gone."""
    return not sys.stderr.isatty()


def _reload_signal() -> asyncio.Event:
    """Returns an event that SIGHUP sets."""
    reload = asyncio.Event()
    if is_reloaded_by_hangup():
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload.set)
    return reload


async def _reload_when_asked(
    server: Server, asked: asyncio.Event, read: Callable[[], Config], masking: Masking
) -> None:
    """Reads the configuration again each time that it is asked to. A wrong one changes nothing."""
    while True:
        await asked.wait()
        asked.clear()
        try:
            server.reload(await asyncio.to_thread(read))
        except ConfigError as error:
            log.error("configuration_refused", key=error.key, source=error.source, problem=masking.text(error.problem))
        except Exception as error:  # the next SIGHUP must be heard, whatever this one found
            problem = masking.text(f"{type(error).__name__}: {error}")
            log.error("configuration_refused", key="", source="", problem=problem)


def _announce(config: Config, address: str, web_address: str, output: LogOutput) -> None:
    """Announces that the server is ready. Scripts wait for the line that begins with "listening on"."""
    if config.log.format == "json":
        if web_address:
            log.info(f"web listener on {web_address}", address=web_address)
        log.info(f"listening on {address}", address=address)
        return
    if web_address:
        output.write(f"console and calls over HTTP on {web_address}\n")
    output.write(f"listening on {address}\n")


def notify(environ: Mapping[str, str], state: str) -> None:
    """Reports a state to the service manager (sd_notify), if one listens. Nothing depends on whether it arrives."""
    path = environ.get("NOTIFY_SOCKET", "")
    if not path:
        return
    address = "\0" + path[1:] if path.startswith("@") else path
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.setblocking(False)
        manager.sendto(state.encode(), address)
