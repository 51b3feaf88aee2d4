"""Adapters to model APIs: the only package that imports the vendors' SDKs.

A neutral `ProviderRequest` goes in, a stream of neutral items comes out; what differs between APIs stays here. Each
API has a request builder, a reader of its stream (both free of I/O) and a thin adapter that joins them with the SDK,
which does requests and authentication. Nothing here stores anything, retries a call, or lets a key or a prompt into an
error. Start at `registry.py`, then `openai_chat/`.
"""
