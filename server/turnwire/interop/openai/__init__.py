"""Conversations as the messages of OpenAI's chat API: one JSON document, or JSON Lines with one conversation a line.

The fine-tuning form `{"messages": [...]}` is a line; `id`, `title` and `created` (seconds since 1970) may stand next to
`messages`. `writing` says what the form has no place for.
"""
