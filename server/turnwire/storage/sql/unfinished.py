"""The mark of a database to which another one is being moved: a table, dropped in the commit that stores all rows."""

from turnwire.domain.errors import StorageError

MARK = "unfinished_move"
"""The name of the table. As long as it exists, no server serves the database."""


class Unfinished(StorageError):
    """A database has the mark."""

    def __init__(self) -> None:
        """Tells the operator what to do."""
        super().__init__("a move to this database has not ended, so it is not complete: `turnwire move` to it again")
