"""Runs a program, and ends all that it has started when it ends: `python -I -S supervisor.py PARENT PROGRAM [ARG…]`.

For Linux. A process of its own, made of the standard library alone: it is started for each program and stays small. Its
descendants cannot leave it: where a process ends before its children, the kernel gives them to this one, whatever
groups and sessions they made. It ends with the program's code (128 and the signal's number after a signal) when

- the program has ended,
- it gets SIGTERM, which the program gets too and has `GRACE_SECONDS` to obey,
- it gets SIGINT: at once,
- its parent has died, however: the kernel sends it SIGTERM then.

Before that it kills every process that is left. A program that kills this process escapes.
"""

import ctypes
import os
import signal
import sys
import time

GRACE_SECONDS = 0.3
"""How long the program may take to end after SIGTERM."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_SIGNALS = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT}


def main(parent: int, program: list[str]) -> int:
    """Returns the exit code: that of the program, or 127 when it cannot be started."""
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it died before the kernel was told
        return 0
    try:
        child = os.posix_spawnp(
            program[0],
            program,
            os.environ,
            setpgroup=0,
            setsigmask=(),
            setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),  # Python ignores them
        )
    except OSError as error:
        print(f"{program[0]}: {error.strerror}", file=sys.stderr)
        return 127
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):  # the program's pipes end with the program
        os.dup2(nothing, number)
    code = _wait(child)
    _end_all()
    return code


def _wait(child: int) -> int:
    """Returns the code of the program once it has ended, or 0 when its time is over."""
    end: float | None = None
    while True:
        left = None if end is None else end - time.monotonic()
        if left is None:
            number = signal.sigwait(_SIGNALS)
        else:
            found = signal.sigtimedwait(_SIGNALS, max(left, 0))
            if found is None:
                return 0
            number = signal.Signals(found.si_signo)
        if number == signal.SIGINT:
            return 0
        if number == signal.SIGTERM and end is None:
            end = time.monotonic() + GRACE_SECONDS
            _send(-child, signal.SIGTERM)
        if (code := _reap(child)) is not None:
            return code


def _reap(child: int) -> int | None:
    """Takes the ends of processes; returns the code of the program if it is among them."""
    code = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if pid == 0:
            return code
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            code = code if code >= 0 else 128 - code


def _end_all() -> None:
    """Kills until nobody is left: the children of who dies become children of this process."""
    while children := _children():
        for pid in children:
            _send(pid, signal.SIGKILL)
        signal.sigtimedwait(_SIGNALS, 0.01)
        _reap(0)


def _children() -> list[int]:
    """Returns the children of this process, those that have ended too."""
    own = os.getpid()
    try:
        with open(f"/proc/{own}/task/{own}/children") as file:  # noqa: PTH123 - nothing else of pathlib is needed
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and _parent_of(name) == own]  # noqa: PTH208


def _parent_of(pid: str) -> int:
    try:
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:  # it has ended
        return 0


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
