"""Leases: clients claim calls of their tools, so that no two of them run the same one."""
