"""`make bench ARGS="attacks"`: what a hostile client, model server or tool does to the server and to a neighbour.

Each attack gets a server of its own with default limits, and a neighbour: another process that calls GetSession every
20 ms and streams 50 deltas a second (`bench.neighbour`). First the neighbour is measured alone, then for some seconds
beside the attack. A row has the server's peak memory, the longest time that its event loop was held (from its own log
lines `event_loop_stuck`), what the neighbour waited for a call before and during, its longest gap in the stream, how
many of its calls failed, and how long the server took to stop afterwards.

`make bench ARGS="attacks"` runs all; `ARGS="attacks:rapid_reset attacks:tiny_frames"` runs some of them.

To add an attack: write a module here with

    ATTACKS = (Attack("name", "what it does, in a few words", run),)

where `async def run(target: Target) -> None` attacks until it is cancelled. It runs in a process of its own, with a low
priority and a limit of memory; what it prints stands below its row. Then name the module in `table.py`. Two more fields
of `Attack`: `toml` is configuration for the server (not `[web]` and `[log]`, which the frame sets), and `around` is for
what must be there before the server starts, such as a hostile model server: a function of an empty folder that returns
an asynchronous context manager, which yields more configuration. `bench.child.running` starts a process for it.
"""
