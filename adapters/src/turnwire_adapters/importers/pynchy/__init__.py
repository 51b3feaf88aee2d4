"""The message files of pynchy, an assistant in chats: SQLite files.

`rows` decides what a row is, and is pure. `file` recognises such a file and reads it, `migration` gives the rows their
types in place, `conversations` makes sessions of the chats.
"""
