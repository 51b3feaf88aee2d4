"""The web listener: Connect, gRPC-Web and JSON over HTTP/1.1, and the files of the console.

It sends every call through the same gate to the same services as the gRPC listener. uvicorn reads and writes HTTP,
`app` chooses what answers a request, `protocols` speaks Connect and gRPC-Web, and `encoding` has what these share.
Only this package imports uvicorn and h11. Start with `server.WebServer`.
"""
