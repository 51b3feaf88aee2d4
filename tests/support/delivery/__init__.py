"""A model of delivery: what clients do and what befalls the server, drawn by chance, and what must hold all the time.

`machine` draws what happens. `world` has the server, a process that is killed, stopped and restored, and what it
promised. `readers` follow sessions and compare what they hold with what is stored.
"""
