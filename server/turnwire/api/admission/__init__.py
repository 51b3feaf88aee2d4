"""Admission control: decides which calls start, how much they may hold, and which are refused. Knows no transport.

A call goes through `overload` (how many there are, and whether there is memory), `reads` (its request is read within a
time), `requests` (large ones have a part of one memory budget) and `responses` (so have large answers). `fair_queue`
has calls that wait to begin, `abuse` closes connections of clients that do not read. docs/operate/overload.md describes
it.
"""
