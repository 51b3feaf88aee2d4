"""`turnwire export`: writes sessions of a running server into an archive."""

import contextlib
import errno
import hashlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import grpc
from msgspec import Struct

from opencode.transfer.transfer_pb2 import ExportSessionsRequest
from opencode.transfer.transfer_pb2_grpc import TransferServiceStub
from turnwire.cli.connection import ConnectionProblem, Endpoint, describe
from turnwire.cli.output import Bar, print_error, print_json, print_line, progress_bar

MAX_ATTEMPTS = 5
"""Maximum attempts in a row to resume an interrupted download without receiving a byte."""

_INTERRUPTED = 130


class ExportOptions(Struct, frozen=True, kw_only=True):
    """The export that was requested."""

    session_ids: tuple[str, ...] = ()
    """All sessions when it is empty."""
    format: str = ""
    include_files: bool = True
    target: Path | None = None
    """The file to write; None for standard output."""


def run_export(connection: Endpoint, wanted: ExportOptions, *, as_json: bool) -> int:
    """Writes an archive. A file is replaced when the archive is complete, else it stays as it was.

    Returns:
        The exit code: 0; 1 when it failed; 2 for wrong options; 130 when it was interrupted.
    """
    try:
        with connection.open() as channel, progress_bar() as bar, _opened(wanted.target) as file:
            download = _Download(file, bar)
            download.run(TransferServiceStub(channel), wanted)
    except ConnectionProblem as problem:
        print_error(str(problem))
        return 2
    except grpc.RpcError as error:
        print_error(describe(error))
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the end of the process tries again
        return 1
    except OSError as error:
        print_error(f"{wanted.target or 'standard output'}: {error.strerror}")
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED
    if wanted.target is not None:
        facts = {"file": str(wanted.target), "bytes": download.size, "sha256": download.sha256}
        if as_json:
            print_json(facts)
        else:
            print_line(f"{wanted.target}: {download.size} bytes")
    return 0


class _Download:
    """One archive while it comes in."""

    def __init__(self, file: IO[bytes], bar: Bar) -> None:
        self._file = file
        self._bar = bar
        self._digest = hashlib.sha256()
        self.size = 0

    @property
    def sha256(self) -> str:
        """The digest of what has come."""
        return self._digest.hexdigest()

    def run(self, transfer: TransferServiceStub, wanted: ExportOptions) -> None:
        """Reads to the end; resumes where a connection was lost."""
        self._bar.begin("exporting")
        attempts = 0
        while True:
            before = self.size
            try:
                self._read(transfer, wanted)
            except grpc.RpcError as error:
                attempts = 1 if self.size > before else attempts + 1
                if error.code() is not grpc.StatusCode.UNAVAILABLE or not self.size or attempts > MAX_ATTEMPTS:
                    raise
            else:
                return

    def _read(self, transfer: TransferServiceStub, wanted: ExportOptions) -> None:
        request = ExportSessionsRequest(
            session_ids=wanted.session_ids,
            format=wanted.format,
            include_files=wanted.include_files,
            offset=self.size,
            prefix_sha256=self.sha256 if self.size else "",
        )
        for answer in transfer.ExportSessions(request, wait_for_ready=bool(self.size)):
            self._file.write(answer.data)
            self._digest.update(answer.data)
            self.size += len(answer.data)
            self._bar.begin(f"exporting: {self.size // 1000:,} kB")
        self._file.flush()


@contextlib.contextmanager
def _opened(target: Path | None) -> Iterator[IO[bytes]]:
    """Opens standard output, or a file that takes the place of the target when the block ends well.

    Behind a link, the file that it names is replaced. Pipes and devices are written to.
    """
    if target is None:
        yield sys.stdout.buffer
        return
    target = Path(os.path.realpath(target))
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if target.exists() and not target.is_file():
        with target.open("wb") as special:
            yield special
        return
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name[:100]}.", delete=False) as file:
        partial = Path(file.name)
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            partial.replace(target)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
