"""Makes the fold vectors of clients/vectors/ from the event streams of a real server.

`scenes/` holds the conversations: each one is carried out against a server while a `Tape` records what its watches
answer, and asks the server what it has stored at the end. `retelling` then gives the recording names, times and
batches that do not depend on the moment, and `files` writes it. `python -m tests.support.vectors` makes them all.

What a client must hold (`want`) is what the server has stored. It is never taken from a fold, except where a scene adds
events that no server sends. The fold of the Python client only says when a watch has told everything, and is checked.
"""
