"""The checks of an examination. Each is a generator of findings that reads its tables once, row by row.

A check that is finished has held one row, or the events of one session, in memory at a time.
"""
