"""Turnwire's own archives: JSON Lines that lose nothing. docs/reference/archive.md describes them for authors of tools.

`lines` has the kinds of lines; `writing` writes and `reading` reads them. Values are the same as in the store.
"""
