"""gRPC: the contract on one side, the core on the other.

The only package that imports grpc or the generated `opencode` code. Servicers check the form of a request, call one use
case and convert the answer; they hold no state and make no decision. Start with `server`.
"""
