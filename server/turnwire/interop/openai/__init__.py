"""Conversations in the form of OpenAI's chat API: one JSON document, or JSON Lines with one conversation per line.

The fine-tuning form `{"messages": [...]}` is a line; `id`, `title` and `created` (seconds since 1970) may stand next to
`messages`. `writing` lists what the form cannot express.
"""
