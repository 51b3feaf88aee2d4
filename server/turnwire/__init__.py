"""Turnwire: a conversation server.

Start reading at `turnwire.app`, which puts the pieces together. The packages depend on each other one way only:
`cli, app -> telemetry, config -> (api | storage | providers | feed | tools) -> core -> ports -> domain`.
"""

__version__ = "0.1.0"
