"""Benchmarks: what Turnwire costs beside the least that the same transport can do.

`python -m bench` runs all of them, `python -m bench NAME...` some, `--quick` in a shorter and noisier way. Nothing is
asserted and nothing is written outside temporary folders. Each figure stands beside its ceiling, a bare server that
does the same work without Turnwire, measured in the same run with the same client: only their ratio says anything,
seconds depend on the machine.

The server under test, the bare server and the model provider are processes of their own; the client is this one. Start
with `__main__.py`; a measurement is a module with an asynchronous `measure`.
"""
