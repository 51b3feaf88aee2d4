"""`turnwire-adapters import pynchy FILE`: makes sessions of the chats of a pynchy file."""

import contextlib
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import BinaryIO

from turnwire_adapters.importers import command
from turnwire_adapters.importers.archive import Json, Record
from turnwire_adapters.importers.pynchy.conversations import digest_of, records
from turnwire_adapters.importers.pynchy.file import Row, examine, rows_after
from turnwire_adapters.importers.pynchy.migration import RowDigest, Rules
from turnwire_adapters.importers.sqlite_file import private_copy


def add_arguments(parser: ArgumentParser) -> None:
    """Adds the options."""
    command.add_arguments(parser)
    add_rules(parser)


def add_rules(parser: ArgumentParser) -> None:
    """Adds the options that say how rows are read."""
    parser.add_argument(
        "--bot-name",
        action="append",
        default=[],
        metavar="NAME",
        help='name of the assistant besides "bot"; repeatable',
    )
    parser.add_argument("--reclassify", action="store_true", help="give notices and traces their true type")
    parser.add_argument("--skip-bad", action="store_true", help="leave out, and report, rows that refuse the file else")


def rules_of(given: Namespace) -> Rules:
    """Returns how rows are classified."""
    return Rules(bot_names=frozenset(given.bot_name), reclassify=given.reclassify)


def run(given: Namespace) -> int:
    """Imports a file. Returns the exit code."""
    before, left_out = RowDigest(), list[Row]()

    @contextlib.contextmanager
    def opened() -> Iterator[Iterator[Record]]:
        with private_copy(given.file) as db:
            if given.verify:
                for row in rows_after(db, examine(db)):
                    before.add(row.old)
            yield records(db, rules_of(given), left_out if given.skip_bad else None)

    def compare(archive: BinaryIO) -> Json:
        after = digest_of(archive)
        for row in left_out:
            before.remove(row.old)
        return {
            "right": (before.rows, before.digest) == (after.rows, after.digest),
            "before": {"rows": before.rows, "digest": before.digest},
            "after": {"rows": after.rows, "digest": after.digest},
        }

    return command.run(given, opened, compare)
