"""Hosts on one machine: a network namespace each, and a switch between them whose links a test cuts or slows down.

A link is cut by sending its frames to a hardware address that no host has: both ends hear nothing, as when a cable is
pulled. The namespace of the tests is a host too.
"""

import contextlib
import itertools
import os
import subprocess
from collections.abc import Sequence

_NOBODY = "02:00:00:00:00:ff"
_PROBE = f"tw{os.getpid()}-probe"


def missing() -> str:
    """Returns why this process cannot make hosts; "" when it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        _ip("netns", "add", _PROBE)
        _ip("link", "add", "eth0", "netns", _PROBE, "type", "veth", "peer", "name", "peer", "netns", _PROBE)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no network namespaces here: {getattr(error, 'stderr', '') or error}".strip()
    finally:
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            _ip("netns", "delete", _PROBE)
    return ""


class Network:
    """Hosts that reach each other until they are cut off. `close` removes them."""

    HERE = "here"
    """The host of the tests."""

    def __init__(self, hosts: Sequence[str]) -> None:
        """Makes the hosts. Raises OSError or CalledProcessError; see `missing`."""
        self._prefix = f"tw{os.getpid()}-"
        self._addresses = {host: f"10.213.{os.getpid() % 250}.{n}" for n, host in enumerate([*hosts, self.HERE], 1)}
        self._switch = f"{self._prefix}switch"
        try:
            _ip("netns", "add", self._switch)
            _ip("-n", self._switch, "link", "add", "dev", "switch", "type", "bridge")
            _ip("-n", self._switch, "link", "set", "dev", "switch", "up")
            for host in hosts:
                _ip("netns", "add", self._prefix + host)
                self._connect(host)
                self._in(host, "link", "set", "dev", "lo", "up")
            self._connect(self.HERE)
        except BaseException:
            self.close()
            raise

    def address(self, host: str) -> str:
        """Returns the address of a host."""
        return self._addresses[host]

    def within(self, host: str) -> Sequence[str]:
        """Returns the words before a command that runs it on a host."""
        return ("ip", "netns", "exec", self._prefix + host)

    def cut(self, one: str, *others: str) -> None:
        """Cuts a host off from others, without a word to either end."""
        for ends in itertools.chain.from_iterable(((one, other), (other, one)) for other in others):
            self._in(ends[0], *self._neighbour("replace", *ends), "lladdr", _NOBODY, "nud", "permanent")

    def mend(self, one: str, *others: str) -> None:
        """Takes a cut back."""
        for ends in itertools.chain.from_iterable(((one, other), (other, one)) for other in others):
            self._in(ends[0], *self._neighbour("delete", *ends))

    def slow(self, host: str, kilobits: int) -> None:
        """Lets a host send and receive that many kilobits a second, with up to 0.4 s of waiting in each direction."""
        limit = ("root", "tbf", "rate", f"{kilobits}kbit", "burst", "4kb", "latency", "400ms")
        for place, device in self._ends(host):
            _run("tc", "-n", place, "qdisc", "replace", "dev", device, *limit)

    def hasten(self, host: str) -> None:
        """Takes `slow` back."""
        for place, device in self._ends(host):
            _run("tc", "-n", place, "qdisc", "delete", "dev", device, "root")

    def close(self) -> None:
        """Removes the hosts, and what still runs there keeps no network. Idempotent."""
        for place in (self._switch, *(self._prefix + host for host in self._addresses if host != self.HERE)):
            with contextlib.suppress(OSError, subprocess.CalledProcessError):
                _ip("netns", "delete", place)
        with contextlib.suppress(OSError, subprocess.CalledProcessError):  # else it lives until its peer has gone
            _ip("link", "delete", self._device(self.HERE))

    def _connect(self, host: str) -> None:
        place = () if host == self.HERE else ("netns", self._prefix + host)
        device = self._device(host)
        _ip("link", "add", device, *place, "type", "veth", "peer", "name", host, "netns", self._switch)
        _ip("-n", self._switch, "link", "set", "dev", host, "master", "switch", "up")
        self._in(host, "address", "add", f"{self.address(host)}/24", "dev", device)
        self._in(host, "link", "set", "dev", device, "up")

    def _device(self, host: str) -> str:
        return f"tw{os.getpid()}" if host == self.HERE else "eth0"

    def _ends(self, host: str) -> Sequence[tuple[str, str]]:
        return ((self._prefix + host, "eth0"), (self._switch, host))

    def _neighbour(self, change: str, host: str, other: str) -> Sequence[str]:
        return ("neighbour", change, self.address(other), "dev", self._device(host))

    def _in(self, host: str, *words: str) -> None:
        _ip(*(() if host == self.HERE else ("-n", self._prefix + host)), *words)


def _ip(*words: str) -> None:
    _run("ip", *words)


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True)
