"""Plue's numeric codes."""

from opencode.error.error_reason_pb2 import ErrorReason
from turnwire_adapters.plue.codes import CODES, PlueCode, plue_code


def test_every_reason_has_a_code() -> None:
    """The table is complete: a new reason gets its code in the commit that adds it."""
    assert set(CODES) == set(ErrorReason.keys()) - {"ERROR_REASON_UNSPECIFIED"}


def test_codes_are_those_of_plue() -> None:
    """By name and number."""
    assert {code.name: int(code) for code in PlueCode} == {
        "OK": 0, "INVALID_PARAM": -1, "NOT_FOUND": -2, "ALREADY_EXISTS": -3, "PROVIDER_AUTH": -4, "PROVIDER_INIT": -5,
        "JSON_PARSE": -6, "IO": -7, "TIMEOUT": -8, "ABORTED": -9, "UNKNOWN": -99,
    }  # fmt: skip


def test_newer_reasons_are_unknown() -> None:
    """A client of today meets a server of tomorrow."""
    assert plue_code("NEVER_HEARD_OF") is PlueCode.UNKNOWN
