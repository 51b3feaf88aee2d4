"""Turnwire: a conversation server.

Start reading at `turnwire.app`, which composes the server. Packages import each other in one direction only:
`cli, app -> telemetry, config -> (api | storage | providers | feed | tools) -> core -> ports -> domain`.
"""

__version__ = "0.1.0"
