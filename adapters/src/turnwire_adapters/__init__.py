"""Other systems' clients and data in front of a Turnwire server.

Each adapter has a folder of its own and one line in `registry`. It knows the public contract through `turnwire_client`,
and never imports the server. Start at `cli`; `serve` puts the HTTP applications together.
"""

__version__ = "0.1.0"
