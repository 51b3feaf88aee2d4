"""Searching: the index of words, in step with the messages, and finding in it.

The index (`search_index`, FTS5) holds the words as `domain/searching/words.py` divides a text, each behind the short
name of its tenant: a tenant's words are its own, so neither what a search finds nor what it costs depends on those of
another. `entries.py` adds, inside the writer's transaction. Triggers note what was removed, wherever that happens, and
`upkeep.py` takes it out of the index soon after. `finding.py` reads, on a connection that `reader.py` guards.
"""
