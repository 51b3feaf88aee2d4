"""Care for a database file from outside a server: examines it, repairs what can be recomputed, copies it.

All of this runs in a process of its own and accesses the file only through SQLite. A process that opens and closes the
file by other means drops the locks that its own SQLite connections hold (POSIX), and SQLite then deletes a log that is
in use.
"""
