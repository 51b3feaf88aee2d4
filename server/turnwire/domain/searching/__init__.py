"""Searching messages: words, the query language, and what is shown of a hit. Pure values, no storage.

`words.py` divides a text into words, in the index and in a query alike. `queries.py` parses what a person typed,
`content.py` selects the searched text of a part, `snippets.py` cuts out what is shown.
"""
