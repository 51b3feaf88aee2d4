"""`turnwire serve --processes N`: several nodes behind one address, and a parent that keeps them running.

The parent reserves the addresses, forks the nodes, and starts one again that dies. It has no event loop and no thread,
so it can fork at any time. The system divides new connections among the nodes (SO_REUSEPORT). Nodes reach each other by
Unix sockets in a folder of the server's own user.
"""

import contextlib
import ctypes
import gc
import os
import select
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from msgspec.structs import replace

from turnwire.cli.serve import is_reloaded_by_hangup, notify, run_server
from turnwire.config import Config, ConfigError, load_config
from turnwire.config.addresses import host_and_port, host_with_port
from turnwire.config.sections import ClusterConfig
from turnwire.telemetry.memory_monitor import memory_limit

RESTART_SECONDS = 1.0
"""Least time between two starts of one node: one that cannot start does not keep a processor busy."""

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)

_PR_SET_PDEATHSIG = 1


def run_processes(path: Path | None, environ: Mapping[str, str], options: Mapping[str, str], count: int) -> int:
    """Runs nodes until SIGTERM or SIGINT, and then until all of them have ended. SIGHUP is handed on.

    Args:
        path: The configuration file; None looks for one.
        environ: The process's environment.
        options: Options that override file and environment.
        count: Number of nodes.

    Returns:
        The exit code: 0 after a clean stop, 1 when a node could not start or stop, 2 for a wrong configuration.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="turnwire-")))
        try:
            config = load_config(path, environ, options)
            _check(config)
            addresses = {
                option: stack.enter_context(_reserved(listen))
                for option, listen in (("--listen", config.server.listen), ("--web", config.web.listen))
                if listen
            }
        except ConfigError as error:
            print(f"turnwire: {error}", file=sys.stderr)
            return 2
        except OSError as error:
            print(f"turnwire: cannot start: {error}", file=sys.stderr)
            return 1

        def serve(slot: int, address: str) -> int:
            def adapted(config: Config) -> Config:
                _check(config)
                return _of_process(config, slot, count, address)

            own = {**environ, "NOTIFY_SOCKET": str(folder / "ready")}
            return run_server(path, own, {**options, **addresses}, adapted, shares_ports=True)

        return _Nodes(count, folder, environ, serve).run()


def _check(config: Config) -> None:
    """Raises ConfigError: several processes cannot share this."""
    if sys.platform != "linux":
        raise ConfigError("--processes needs Linux, which divides connections among processes")
    if not config.storage.url:
        raise ConfigError("--processes needs storage.url: several processes share PostgreSQL, and never an SQLite file")
    if config.cluster.listen:
        raise ConfigError("--processes and cluster.listen exclude each other: processes reach each other by themselves")
    if config.server.listen.startswith("unix:"):
        raise ConfigError("--processes needs host:port in server.listen: a Unix socket is of one process")


def _of_process(config: Config, slot: int, count: int, address: str) -> Config:
    """Returns the configuration of one node: where others reach it, its metrics, and its part of the memory."""
    limits = replace(config.limits, max_memory_bytes=min(config.limits.max_memory_bytes, memory_limit(2**62) // count))
    metrics = config.metrics
    if metrics.listen:
        host, port = host_and_port(metrics.listen)
        metrics = replace(metrics, listen=host_with_port(host, port and port + slot))
    return replace(config, cluster=ClusterConfig(listen=f"unix:{address}"), metrics=metrics, limits=limits)


@contextlib.contextmanager
def _reserved(listen: str) -> Iterator[str]:
    """Keeps an address for the processes of this server alone, and gives it with the actual port.

    Raises:
        OSError: the address is in use or cannot be bound.
    """
    host, port = host_and_port(listen)
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    try:
        # first for itself: with SO_REUSEPORT another server's port would be shared with it
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            bound = probe.getsockname()
        with socket.socket(family, kind, protocol) as kept:  # never listens, so it gets no connections
            kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            kept.bind(bound)
            yield host_with_port(host, bound[1])
    except OSError as error:
        raise OSError(f"cannot listen on {listen}: {error.strerror}") from error


class _Nodes:
    """The nodes' processes. Each has a slot; one that died is started again in the same one."""

    def __init__(self, count: int, folder: Path, environ: Mapping[str, str], serve: Callable[[int, str], int]) -> None:
        self._folder, self._environ, self._serve = folder, environ, serve
        self._slots: dict[int, int] = {}
        """Slots of the processes that run, by process id."""
        self._due = dict.fromkeys(range(count), 0.0)
        """When the others are to be started, on the monotonic clock."""
        self._count, self._started, self._ready = count, 0, 0
        self._signals: list[int] = []
        """Signals that have come and were not carried out."""
        self._is_stopping, self._code = False, 0

    def run(self) -> int:
        """Returns the exit code when all have ended."""
        gc.freeze()  # a collection would copy the pages that the processes share
        wakeup, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        for number in _SIGNALS:
            signal.signal(number, lambda number, _: self._signals.append(number))
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
            ready.bind(str(self._folder / "ready"))
            ready.setblocking(False)
            while not self._is_stopping or self._slots:
                self._start_due()
                waits = [at - time.monotonic() for at in self._due.values() if not self._is_stopping]
                readable, _, _ = select.select(
                    [wakeup, ready.fileno()], [], [], max(0.0, min(waits)) if waits else None
                )
                if wakeup in readable:
                    os.read(wakeup, 4096)
                if ready.fileno() in readable:
                    self._note(ready.recv(100))
                while self._signals:
                    self._handle(self._signals.pop(0))
                self._reap()
        return self._code

    def _start_due(self) -> None:
        for slot, at in list(self._due.items()):
            if not self._is_stopping and at <= time.monotonic():
                del self._due[slot]
                self._start(slot)

    def _start(self, slot: int) -> None:
        self._started += 1
        address = str(self._folder / f"node-{self._started}")  # never that of a node that died: calls may wait for it
        parent = os.getpid()
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # the child's are not for what handles the parent's
        if pid := os.fork():
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            self._slots[pid] = slot
            return
        code = 1
        try:
            os.setpgid(0, 0)  # Ctrl-C is for the parent, which hands it on once
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            signal.set_wakeup_fd(-1)
            for number in _SIGNALS:
                signal.signal(number, signal.SIG_IGN if number == signal.SIGHUP else signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            if os.getppid() == parent:  # else it died before it could be watched
                code = self._serve(slot, address)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _note(self, state: bytes) -> None:
        if state == b"READY=1":
            self._ready += 1
            if self._ready == self._count:
                notify(self._environ, "READY=1")

    def _handle(self, number: int) -> None:
        if number == signal.SIGHUP and is_reloaded_by_hangup():
            self._send(signal.SIGHUP)
        elif number != signal.SIGCHLD:  # a second one ends the nodes at once, as it does one server
            if not self._is_stopping:
                notify(self._environ, "STOPPING=1")
            self._is_stopping = True
            self._send(signal.SIGTERM)

    def _send(self, number: int) -> None:
        for pid in self._slots:
            os.kill(pid, number)

    def _reap(self) -> None:
        while self._slots:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            slot, code = self._slots.pop(pid), os.waitstatus_to_exitcode(status)
            if self._is_stopping:
                if code not in (0, -signal.SIGTERM):  # the latter ended one that had not started yet
                    self._code = self._code or 1
            elif code > 0 and self._ready < self._count:  # what is wrong with the first start is so with the next
                self._is_stopping, self._code = True, code
                self._send(signal.SIGTERM)
            else:
                print(f"turnwire: process {pid} ended with {code}; another one starts", file=sys.stderr, flush=True)
                self._due[slot] = time.monotonic() + RESTART_SECONDS
