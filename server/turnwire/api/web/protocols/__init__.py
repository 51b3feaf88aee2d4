"""The protocols: Connect with one answer, Connect with a stream, and gRPC-Web. Each runs calls through the gate."""
