"""Formats of other message systems, for import and export.

Each format has its package. Imports become values of the domain, because the contract leaves out what only providers
understand. A format uses domain and ports, never the core, the store or another format. The composition passes it what
it needs.
"""
