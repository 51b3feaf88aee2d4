package turnwire

import (
	"context"
	"encoding/json"
	"fmt"

	pb "github.com/turnwire/turnwire/clients/go/opencode"
)

// Tool is a function that a model can call. It runs in this program. Make it with [NewTool] or [NewRawTool].
type Tool struct {
	definition *pb.ToolDefinition
	run        func(context.Context, string) (*ToolResult, error)
}

// ToolResult is what a tool answers when text or JSON alone is not enough.
type ToolResult struct {
	// Output is text for the model. It counts when OutputJSON is empty.
	Output string
	// OutputJSON is JSON text for the model, which is kept byte by byte.
	OutputJSON string
	// IsError says that the tool failed; the output then says why.
	IsError bool
	// MetadataJSON is a JSON object that people are shown and models are not.
	MetadataJSON string
	// Files are files that the tool made, such as a picture: at most 20.
	Files []*pb.ToolResultFile
}

// NewTool makes a tool of a function. The model reads the description and the JSON Schema of In, which is a struct: a field has
// the name and the omitempty of its json tag, and may have the tags description (for the model) and enum (the values that it
// can have, with commas between them). A field is required unless it is a pointer or may be left out (omitempty, omitzero).
// The server checks arguments against the schema before the function is called.
//
// What the function returns is the result: a string is text, a [*ToolResult] is the result itself, and anything else is JSON. An
// error becomes a result that says so; the model reads its text. The context ends when nobody waits for the result any
// more. [CallFromContext] has the call.
//
// NewTool panics when In has no schema, such as a function: that is a mistake in the program.
func NewTool[In, Out any](name, description string, run func(context.Context, In) (Out, error)) *Tool {
	definition := &pb.ToolDefinition{Name: name, Description: description, InputSchemaJson: schemaOf[In]()}
	return NewRawTool(definition, func(ctx context.Context, input string) (*ToolResult, error) {
		var in In
		if err := json.Unmarshal([]byte(input), &in); err != nil {
			return nil, fmt.Errorf("the arguments are not what the tool takes: %w", err)
		}
		out, err := run(ctx, in)
		if err != nil {
			return nil, err
		}
		return resultOf(out)
	})
}

// NewRawTool makes a tool of a definition, with a schema of its own or none, and a function that takes the arguments as JSON
// text.
func NewRawTool(definition *pb.ToolDefinition, run func(ctx context.Context, input string) (*ToolResult, error)) *Tool {
	return &Tool{definition, run}
}

// Definition returns what the server is told, for example to keep the tool in the settings of a session.
func (t *Tool) Definition() *pb.ToolDefinition { return t.definition }

// Call is a call of a tool.
type Call struct {
	SessionID string
	TurnID    string // "" when it is not known
	State     *pb.ToolCallState

	log func(string)
}

// Log adds a line to the log of the call, which people see while it runs. A call without a lease ([WithoutLeases]) has no log
// and drops the line.
func (c *Call) Log(line string) {
	if c.log != nil {
		c.log(line)
	}
}

type callKey struct{}

// CallFromContext returns the call that a tool runs for; nil when ctx is not the context of one.
func CallFromContext(ctx context.Context) *Call {
	call, _ := ctx.Value(callKey{}).(*Call)
	return call
}

func resultOf(out any) (*ToolResult, error) {
	switch out := out.(type) {
	case string:
		return &ToolResult{Output: out}, nil
	case *ToolResult:
		if out == nil {
			return &ToolResult{}, nil
		}
		return out, nil
	case ToolResult:
		return &out, nil
	}
	encoded, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("the result is no JSON: %w", err)
	}
	return &ToolResult{OutputJSON: string(encoded)}, nil
}

// request returns the request that submits a result.
func (r *ToolResult) request(sessionID, callID, leaseID string) *pb.SubmitToolResultRequest {
	request := &pb.SubmitToolResultRequest{
		SessionId: sessionID, ToolCallId: callID, LeaseId: leaseID,
		IsError: r.IsError, MetadataJson: r.MetadataJSON, Files: r.Files,
		Result: &pb.SubmitToolResultRequest_Output{Output: r.Output},
	}
	if r.OutputJSON != "" {
		request.Result = &pb.SubmitToolResultRequest_OutputJson{OutputJson: r.OutputJSON}
	}
	return request
}
