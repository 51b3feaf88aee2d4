"""`turnwire health`: asks a running server whether it serves."""

import sys

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from turnwire.cli.connection import ConnectionProblem, Endpoint, describe


def run_health(connection: Endpoint, timeout_seconds: float) -> int:
    """Makes one call of the standard health service.

    Args:
        connection: The server, and what to present to it.
        timeout_seconds: How long to wait for the connection and the answer together.

    Returns:
        The exit code: 0 when the server answers SERVING; else 1, with one line on stderr that gives the reason.
    """
    target = connection.target
    try:
        with connection.open() as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=timeout_seconds)
    except ConnectionProblem as problem:
        print(f"turnwire: {problem}", file=sys.stderr)
        return 2
    except grpc.RpcError as error:
        print(f"turnwire: {target} does not serve: {describe(error)}", file=sys.stderr)
        return 1
    status = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
    if answer.status != health_pb2.HealthCheckResponse.SERVING:
        print(f"turnwire: {target} does not serve: it answers {status}", file=sys.stderr)
        return 1
    print(status)
    return 0
