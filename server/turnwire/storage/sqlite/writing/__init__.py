"""What is written: the one writer, and the changes of a commit as SQL.

`writer.py` puts waiting commits into one transaction, `changes.py` applies one of them with the other modules.
"""
