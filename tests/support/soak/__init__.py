"""A server under churn of everything for a time: it must end where it began.

    make soak SECONDS=600 SEED=1

`churn` is what clients do, `server` a server in a process of its own that tells what it holds, `held` compares what it
held before and after, and `run` puts them together.
"""
