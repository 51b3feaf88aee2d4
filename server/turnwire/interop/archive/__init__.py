"""The common parts of readers of foreign archives: bounded JSON, values with positions, conversations as records.

Nothing here knows a format. A reader fills a `ConversationBuilder` from each document; its `records` have the order
that `domain/archive/records.py` requires. Nothing foreign is trusted: `bounds` has limits, and no name from an archive
is used as a path.
"""
