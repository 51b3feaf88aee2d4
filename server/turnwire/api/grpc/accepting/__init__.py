"""How calls are taken from gRPC."""
