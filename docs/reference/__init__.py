"""Writes the parts of the documents that code defines: keys of the configuration, numbers of the contract, metrics.

`python -m docs.reference`, a part of `make generate`, writes them; `tests/contract/test_docs.py` fails when they are
stale.
"""
