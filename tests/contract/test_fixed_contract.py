"""The contract holds every promise of the fixed one, and what is ours in it keeps to our own rules."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor, ServiceDescriptor

from tests.support.clients.fixed_client import (
    FIXED_IMAGE,
    FIXED_SOURCES,
    ROOT,
    compile_seed,
    compile_sources,
    seed_contract,
)

FIRST_NUMBER_OF_OURS = 16
"""Below it, numbers of fixed messages belong to the fixed contract."""


def _fixed_files() -> list[descriptor_pb2.FileDescriptorProto]:
    image = descriptor_pb2.FileDescriptorSet.FromString(FIXED_IMAGE.read_bytes())
    return [file for file in image.file if file.package.startswith("opencode.")]


def _fixed_pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(FIXED_IMAGE.read_bytes()).file:
        pool.Add(file)
    return pool


def _our_pool() -> descriptor_pool.DescriptorPool:
    for path in sorted((ROOT / "generated" / "python").rglob("*_pb2.py")):
        importlib.import_module(".".join(path.relative_to(ROOT / "generated" / "python").with_suffix("").parts))
    return descriptor_pool.Default()


def _our_files() -> list[str]:
    folder = ROOT / "proto"
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.proto"))


FIXED = _fixed_pool()
OURS = _our_pool()
FIXED_MESSAGES = [f"{file.package}.{message.name}" for file in _fixed_files() for message in file.message_type]
FIXED_SERVICES = [f"{file.package}.{service.name}" for file in _fixed_files() for service in file.service]


def _shape(field: FieldDescriptor) -> dict[str, object]:
    """All that a reader or a generated client depends on; the same words for both contracts, so that they compare."""
    entry = field.message_type if field.message_type and field.message_type.GetOptions().map_entry else None
    oneof = field.containing_oneof
    return {
        "name": field.name,
        "json_name": field.json_name,
        "type": field.type,
        "repeated": field.is_repeated,
        "presence": field.has_presence,
        "oneof": oneof.name if oneof else None,
        "message": field.message_type.full_name if field.message_type else None,
        "entry": _shapes(entry) if entry else None,
    }


def _shapes(message: Descriptor) -> dict[int, dict[str, object]]:
    return {field.number: _shape(field) for field in message.fields}


def _our_methods() -> list[MethodDescriptor]:
    services: list[ServiceDescriptor] = [
        service for name in _our_files() for service in OURS.FindFileByName(name).services_by_name.values()
    ]
    return [method for service in services for method in service.methods]


def _is_fixed(method: MethodDescriptor) -> bool:
    service = method.containing_service.full_name
    return service in FIXED_SERVICES and method.name in FIXED.FindServiceByName(service).methods_by_name


def test_fixed_messages_keep_every_field() -> None:
    """A fixed message has its fixed fields with number, name, type, presence and oneof."""
    for name in FIXED_MESSAGES:
        fixed = _shapes(FIXED.FindMessageTypeByName(name))
        ours = _shapes(OURS.FindMessageTypeByName(name))
        assert {number: shape for number, shape in ours.items() if number in fixed} == fixed


def test_our_fields_in_fixed_messages_start_at_16() -> None:
    """The fixed contract may still use its low numbers without meeting ours."""
    for name in FIXED_MESSAGES:
        fixed = FIXED.FindMessageTypeByName(name).fields_by_number
        ours = OURS.FindMessageTypeByName(name).fields_by_number
        assert [number for number in ours if number not in fixed and number < FIRST_NUMBER_OF_OURS] == []


def test_fixed_methods_keep_paths_streaming_and_fields() -> None:
    """A fixed method exists, streams the same way, and its request and answer hold every fixed field."""
    for name in FIXED_SERVICES:
        ours = OURS.FindServiceByName(name)
        for fixed in FIXED.FindServiceByName(name).methods:
            method = ours.methods_by_name[fixed.name]
            assert (method.client_streaming, method.server_streaming) == (
                fixed.client_streaming,
                fixed.server_streaming,
            )
            for mine, theirs in ((method.input_type, fixed.input_type), (method.output_type, fixed.output_type)):
                shapes = _shapes(theirs)
                assert {number: shape for number, shape in _shapes(mine).items() if number in shapes} == shapes


def test_our_methods_have_requests_and_responses_of_their_own() -> None:
    """buf.yaml excepts whole files for the fixed names; what is not fixed in them is named XRequest and XResponse."""
    for method in _our_methods():
        if _is_fixed(method):
            continue
        assert method.input_type.name == f"{method.name}Request"
        assert method.output_type.name == f"{method.name}Response"


def test_image_is_made_of_its_sources() -> None:
    """The frozen image and the readable sources beside it say the same."""
    image = descriptor_pb2.FileDescriptorSet.FromString(FIXED_IMAGE.read_bytes())
    for file in image.file:
        file.DiscardUnknownFields()  # buf's own notes
    sources = compile_sources(FIXED_SOURCES)
    assert {file.name: file for file in image.file} == {file.name: file for file in sources.file}


def test_sources_agree_with_the_contract_file() -> None:
    """The readable sources are the contract as it was given."""
    seed = seed_contract()
    if seed is None:
        pytest.skip("the contract's own file is not here: name it in TURNWIRE_SEED_CONTRACT")
    given = {file.name: file for file in compile_seed(seed).file}
    sources = {file.name: file for file in compile_sources(FIXED_SOURCES).file}
    message = "opencode/message/message.proto"
    # The order in a file is not a promise.
    assert {m.name: m for m in given[message].message_type} == {m.name: m for m in sources[message].message_type}
    assert list(given[message].service) == list(sources[message].service)


def test_generated_code_is_fresh() -> None:
    """The Python stubs are what proto/ gives."""
    environment = dict(os.environ, PYTHON=sys.executable)
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
    check = subprocess.run(
        [ROOT / "proto" / "check_generated.sh"], env=environment, capture_output=True, text=True, check=False
    )
    assert check.returncode == 0, check.stdout + check.stderr
