"""Adapters to model APIs: the only package that imports the vendors' SDKs.

An adapter takes a neutral `ProviderRequest` and returns a stream of neutral items; differences between APIs stay here.
Each API has a request builder, a reader of its stream (both free of I/O) and a thin adapter that connects them to the
SDK, which does requests and authentication. Nothing here stores anything, retries a call, or puts a key or a prompt
into an error. Start at `registry.py`, then `openai_chat/`.
"""
