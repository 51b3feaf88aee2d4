"""The index of words: an FTS5 table without text, and a row for each part that is found.

`index.py` says what the index has and keeps it in step with the messages, `finding.py` runs one search, `reader.py`
gives searches a connection and a limit of time of their own.
"""
