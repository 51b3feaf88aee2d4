"""Parsers of foreign bytes, each as a function of bytes that raises when a promise is broken.

`targets` has these functions and their first examples, `__main__` runs them under the coverage-guided fuzzer atheris,
and `tests/fuzz` replays what it found, without atheris.
"""
