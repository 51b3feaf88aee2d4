"""Moments and spans as messages of the contract."""

from datetime import datetime, timedelta

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp


def timestamp(at: datetime) -> Timestamp:
    """Returns the moment as a Timestamp, exact to the microsecond."""
    microseconds = _microseconds(at)
    return Timestamp(seconds=microseconds // 1_000_000, nanos=microseconds % 1_000_000 * 1000)


def duration(value: timedelta) -> Duration:
    """Returns the span as a Duration."""
    result = Duration()
    result.FromTimedelta(value)
    return result


def milliseconds(at: datetime) -> int:
    """Returns the moment in milliseconds since the Unix epoch, rounded down."""
    return _microseconds(at) // 1000


def _microseconds(at: datetime) -> int:
    return round(at.timestamp() * 1_000_000)
