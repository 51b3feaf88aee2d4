"""Runs a program, and ends all that it has started when it ends: `python -I -S supervisor.py PARENT MAX PROGRAM [ARG]`.

For Linux. A process of its own, made of the standard library alone: it is started for each program and stays small. Its
descendants cannot leave it: where a process ends before its children, the kernel gives them to this one, whatever
groups and sessions they made. It ends with the program's code (128 and the signal's number after a signal) when

- the program has ended,
- it gets SIGTERM, which the program gets too and has `GRACE_SECONDS` to obey,
- it gets SIGINT: at once,
- its parent has died, however: the kernel sends it SIGTERM then,
- the program and its descendants are more than MAX processes, which it says on standard error. It looks a few times a
  second, so a program that starts processes without end has more for a moment.

Before that it kills every process that is left. A program that kills this process escapes.
"""

import contextlib
import ctypes
import os
import signal
import sys
import time

GRACE_SECONDS = 0.3
"""How long the program may take to end after SIGTERM."""

LOOK_SECONDS = 0.2
"""Between two counts of the processes, each of which takes some tenths of a millisecond."""

TOO_MANY = 125
"""Exit code when there are too many processes."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_SIGNALS = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT}


def main(parent: int, max_processes: int, program: list[str]) -> int:
    """Returns the exit code: that of the program, TOO_MANY, or 127 when it cannot be started."""
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    _go_first()
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
    errors = _reopened(2)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):  # the program's pipes end with the program
        os.dup2(nothing, number)
    code = _wait(child, max_processes)
    if code == TOO_MANY:
        _say(errors, f"it had more than {max_processes} processes")
        _send(-child, signal.SIGKILL)  # of a group nobody is missed, however fast it forks
    _end_all()
    return code


def _wait(child: int, max_processes: int) -> int:
    """Returns the code of the program once it has ended, 0 when its time is over, or TOO_MANY."""
    end: float | None = None
    look = time.monotonic() + LOOK_SECONDS
    while True:
        now = time.monotonic()
        if end is not None and now >= end:
            return 0
        if now >= look:
            if _count(max_processes) > max_processes:
                return TOO_MANY
            look = time.monotonic() + LOOK_SECONDS
        found = signal.sigtimedwait(_SIGNALS, max(min(look, end or look) - now, 0))
        number = found.si_signo if found else signal.SIGCHLD
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


def _count(enough: int) -> int:
    """Returns how many descendants this process has; when they are more than enough, not how many more."""
    waiting, count = _children(os.getpid()), 0
    while waiting and count + len(waiting) <= enough:
        count += 1
        waiting += _children(waiting.pop())
    return count + len(waiting)


def _end_all() -> None:
    """Kills until nobody is left: the children of who dies become children of this process."""
    while waiting := _children(os.getpid()):
        while waiting:
            pid = waiting.pop()
            waiting += _children(pid)
            if (group := _group_of(pid)) not in (0, os.getpgrp()):
                _send(-group, signal.SIGKILL)
            _send(pid, signal.SIGKILL)
        signal.sigtimedwait(_SIGNALS, 0.01)
        _reap(0)


def _go_first() -> None:
    """Runs before processes that use all processors, where that is allowed, as to root."""
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))


def _children(parent: int) -> list[int]:
    """Returns the children of a process, those that have ended too; of one that has ended, none."""
    children: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{parent}/task"):  # noqa: PTH208 - nothing else of pathlib is needed
            with open(f"/proc/{parent}/task/{thread}/children") as file:  # noqa: PTH123
                children += [int(pid) for pid in file.read().split()]
    except OSError:
        if parent == os.getpid():  # a kernel without these files
            return [int(name) for name in os.listdir("/proc") if name.isdigit() and _parent_of(name) == parent]  # noqa: PTH208
    return children


def _group_of(pid: int) -> int:
    """Returns the process group; 0 when the process is gone."""
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def _reopened(descriptor: int) -> int | None:
    """Opens a pipe once more for this process alone, so that a write never waits; None where that cannot be."""
    try:
        return os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None


def _say(descriptor: int | None, words: str) -> None:
    """Writes a line, unless nobody reads it."""
    if descriptor is not None:
        with contextlib.suppress(OSError):
            os.write(descriptor, f"\n{words}\n".encode())


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
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
