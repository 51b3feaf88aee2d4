"""What the system tells of connections; begin with `sockets`."""
