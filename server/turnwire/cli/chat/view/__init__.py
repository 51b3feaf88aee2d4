"""What a person sees of a conversation: events in, drawings out. No input or output; work and memory are bounded.

`transcript` follows the events, `markdown_blocks` cuts a text that grows, `drawings` says how each thing looks, and
`canvas` makes text for a terminal of it, the only place where escape codes come from.
"""
