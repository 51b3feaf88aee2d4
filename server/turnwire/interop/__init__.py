"""Formats of other message systems, in and out.

Each format has a room of its own, which reads and writes that format and makes values of the domain. It knows domain
and ports, never the core, the store or another format. Whoever puts things together gives it what it needs.
"""
