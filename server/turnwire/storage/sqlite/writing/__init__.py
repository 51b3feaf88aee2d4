"""What is written: the one writer, and the changes of a commit as SQL.

`writer.py` puts waiting commits into one transaction, `engine.py` has the statements for their rows.
"""
