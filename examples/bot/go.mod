module github.com/turnwire/turnwire/examples/bot

go 1.25.0

require github.com/turnwire/turnwire/clients/go v0.0.0

require (
	golang.org/x/net v0.58.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/text v0.41.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260526163538-3dc84a4a5aaa // indirect
	google.golang.org/grpc v1.83.2 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

replace github.com/turnwire/turnwire/clients/go => ../../clients/go
