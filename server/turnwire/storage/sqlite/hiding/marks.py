"""How a message is marked that no list shows: `messages.hidden` is 1, and `messages.hidden_at` says why."""

NEVER_HIDDEN = 2**40
"""Added to `messages.hidden_at`, so that it takes six bytes whether a message is hidden or not.

SQLite writes only the changed pages of a row whose size stays, else all of them: the text of a message as well. A row
that an older version wrote has 0 or the sequence alone, and is written whole when it is hidden or shown the next time.
"""

HIDDEN_FOR_EVER = NEVER_HIDDEN + 1
"""`hidden_at` of messages that were stored as hidden ones. The first event of a session never hides anything."""

OFF_THE_PATH = 2**41
"""Added to `hidden_at` of messages that are off the path of their conversation, in place of `NEVER_HIDDEN`."""

OFF_PATH = OFF_THE_PATH + 1
"""`hidden_at` of messages off the path that can be chosen. Others were taken back: they have the sequence of that."""

SHOWN = "session = :session AND hidden = 0 AND queued = 0"
"""Messages on the path, as SQL."""

OFF = f"session = :session AND hidden_at = {OFF_PATH} AND hidden_at >= {OFF_THE_PATH}"
"""Messages off the path, as SQL. The second condition lets SQLite use the index `messages_off_path`."""
