"""Benchmarks: the cost of Turnwire compared with the least that the same transport costs.

`python -m bench` runs all of them, `python -m bench NAME...` some; `--quick` is shorter and noisier. Nothing is
asserted and nothing is written outside temporary folders. Each figure is printed with its ceiling: a bare server that
does the same work without Turnwire, measured in the same run with the same client. Only their ratio is meaningful,
because seconds depend on the machine.

The server under test, the bare server and the model provider are processes of their own; the client is this one. Start
with `__main__.py`; a measurement is a module with an asynchronous `measure`.
"""
