"""Writes the parts of the documents that code defines: the keys of the configuration and the numbers of the contract.

`python -m docs.reference`, a part of `make generate`, writes them; `tests/contract/test_docs.py` fails when they are
stale.
"""
