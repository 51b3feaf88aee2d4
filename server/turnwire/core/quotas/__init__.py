"""Quotas: what each tenant may have and use. Start with `checks`.

Counts are exact: nothing is awaited between a check and what it counts, or a reservation counts meanwhile. Tokens and
money are known after a step, so the last one may go over its quota.
"""
