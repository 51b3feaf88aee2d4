"""`make attacks`: what a hostile client does to the server and to a neighbour.

`table.py` has the attacks, a row each: the limit that bounds it, how it is reached, and what is refused. The driver
(`python -m bench.attacks`) runs them one after the other beside a neighbour, which is another process at another
address: it calls GetSession every 20 ms, appends a message every 50 ms and watches 50 deltas a second
(`bench.neighbour`). It prints for each attack the server's peak memory and what the neighbour felt, and exits 1 when

- the server needed more memory than `limits.max_memory_bytes`, with the defaults of all limits,
- a call of the neighbour failed, or
- no refusal named the limit of the row.

How long the neighbour waited is printed, and not judged: it is the machine's as much as the server's.

An attack is a function `async def run(target: Target, seen: Seen) -> None` that attacks until it is cancelled and tells
`seen` what it was refused. Attacks come from 127.0.0.2 where the system has that address: networks share the server.
"""
