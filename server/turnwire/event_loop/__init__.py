"""The event loop of the server, which gives its time to all owners of work alike.

`owner.py` says whose work a task is, `fair_queue.py` in which order callbacks run, `fair_loop.py` puts that into an
event loop, `tasks.py` ends tasks. Nothing here knows what the server does.
"""
