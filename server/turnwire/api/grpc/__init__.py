"""The gRPC listener: the only package that imports grpc."""
