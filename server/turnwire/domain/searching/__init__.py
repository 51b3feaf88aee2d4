"""Searching messages: what a word is, the query language, and what is shown of a hit. Pure values, no storage.

`words.py` divides a text into words, in the index and in a query alike. `queries.py` reads what a person typed,
`content.py` says what of a part is searched, `snippets.py` cuts out what is shown.
"""
