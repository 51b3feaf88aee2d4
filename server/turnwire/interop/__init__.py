"""Formats of other message systems, in and out.

Each format has its package. What is imported becomes values of the domain, because the contract does not show what only
providers understand. A format knows domain and ports, never the core, the store or another format. Whoever puts things
together gives it what it needs.
"""
