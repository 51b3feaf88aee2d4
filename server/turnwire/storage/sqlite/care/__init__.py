"""Care for a database file from outside a server: examine it, repair what can be recomputed, copy it.

All of it runs in a process of its own and reaches the file through SQLite alone. A process that opens and closes the
file by other means drops the locks that its own SQLite connections hold (POSIX), and SQLite then deletes a log that is
in use.
"""
