"""Turnwire's own archives: JSON Lines that lose nothing. docs/archive.md describes them for people who write tools.

`lines` has the kinds of lines, `writing` writes and `reading` reads them. Values are those that the store has.
"""
