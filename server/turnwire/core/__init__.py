"""Use cases: what Turnwire does, without any transport, database or SDK.

`use_cases` and `watches` are what a listener may call; `turns` runs what they accept. Start with `use_cases`.
"""
