"""Requests of callers, as protobuf and as JSON, through the gate into a whole server: page tokens and all fields."""

from collections.abc import Iterable

from google.protobuf import json_format

from tests.support.clients.every_method import REQUESTS, sample
from tests.support.fuzzing.targets import Target
from tests.support.fuzzing.targets.gated import KEPT
from tests.support.fuzzing.targets.running import run

PATHS = sorted(f"/opencode.{'/'.join(name.rsplit('.', 1))}" for name in REQUESTS if "GlobalEvents" not in name)


def check_protobuf(data: bytes) -> None:
    """The first byte chooses a method, the rest is its request: it is answered or refused."""
    run(_call("proto", data))


def check_json(data: bytes) -> None:
    """As `check_protobuf`, with JSON."""
    run(_call("json", data))


async def _call(codec: str, data: bytes) -> None:
    if data:
        gated = await KEPT.get()
        await gated.call(PATHS[data[0] % len(PATHS)], codec, data[1:])


def _protobuf() -> Iterable[bytes]:
    for name, makers in REQUESTS.items():
        path = f"/opencode.{'/'.join(name.rsplit('.', 1))}"
        if path in PATHS:
            for make in makers:
                yield bytes((PATHS.index(path),)) + make(sample("a")).SerializeToString()


def _json() -> Iterable[bytes]:
    for name, makers in REQUESTS.items():
        path = f"/opencode.{'/'.join(name.rsplit('.', 1))}"
        if path in PATHS:
            made = json_format.MessageToJson(makers[0](sample("a")), indent=None)
            yield bytes((PATHS.index(path),)) + made.encode()


TARGETS = {"protobuf_request": Target(check_protobuf, _protobuf), "json_request": Target(check_json, _json)}
