package turnwire

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"strings"

	pb "github.com/turnwire/turnwire/clients/go/opencode"
)

// SendOption changes a message that is sent.
type SendOption func(*outgoing)

// outgoing is a message before it is sent, and who answers what its turn asks.
type outgoing struct {
	request      *pb.SendMessageRequest
	tools        []*Tool
	onPermission func(context.Context, *pb.PermissionRequest) (Reply, string)
	onQuestion   func(context.Context, *pb.Question) QuestionReply
	err          error
}

// Send stores a message of the user and lets the model answer it. An empty session creates one, which the answer names. Send
// returns when the message is durable; its turn then goes on whether or not anybody watches. [Client.Watch] with
// [FromToken] of the answer's resume token shows all of it.
//
// The message has a name (request_id), the same for every attempt, so it is stored once, however often it is sent.
//
// Errors have the reasons SESSION_NOT_FOUND, INVALID_REQUEST, MODEL_UNKNOWN, TURN_IN_PROGRESS, QUOTA_EXCEEDED and others of
// SendMessage. After an error with a reason nothing is stored. When the context ends first, or the connection is gone for
// longer than [WithRetryTime] allows, that is not known: Send again with the same [WithRequestID].
func (c *Client) Send(
	ctx context.Context, sessionID, text string, options ...SendOption,
) (*pb.SendMessageResponse, error) {
	message, err := newOutgoing(sessionID, text, options)
	if err != nil {
		return nil, err
	}
	return c.Messages.SendMessage(ctx, message.request)
}

func newOutgoing(sessionID, text string, options []SendOption) (*outgoing, error) {
	message := &outgoing{request: &pb.SendMessageRequest{SessionId: sessionID, RequestId: rand.Text()}}
	if text != "" {
		part := &pb.MessagePart{Content: &pb.MessagePart_Text{Text: &pb.TextPart{Text: text}}}
		message.request.Parts = append(message.request.Parts, part)
	}
	for _, option := range options {
		option(message)
	}
	return message, message.err
}

// WithModel chooses the model by provider and name, such as "openai/gpt-5-mini".
func WithModel(name string) SendOption {
	provider, model, _ := strings.Cut(name, "/")
	return func(m *outgoing) {
		m.request.Model = &pb.ModelSelection{Provider: &pb.ProviderInfo{Id: provider}, ModelId: model}
	}
}

// WithAgent chooses the agent.
func WithAgent(name string) SendOption {
	return func(m *outgoing) { m.request.Agent = &name }
}

// WithSystem sets the system prompt of the turn; "" is none.
func WithSystem(prompt string) SendOption {
	return func(m *outgoing) { m.request.System = &prompt }
}

// WithGeneration sets temperature, limits and the like.
func WithGeneration(options *pb.GenerationOptions) SendOption {
	return func(m *outgoing) { m.request.Options = options }
}

// WithFile adds a file. An empty media type is the one that the file name suggests.
func WithFile(filename, mediaType string, data []byte) SendOption {
	return func(m *outgoing) {
		file := &pb.FilePart{Mime: mediaType, Filename: &filename, Data: data}
		m.request.Parts = append(m.request.Parts, &pb.MessagePart{Content: &pb.MessagePart_File{File: file}})
	}
}

// WithBusyPolicy says what the message does while a turn runs: it waits unless set.
func WithBusyPolicy(policy pb.BusyPolicy) SendOption {
	return func(m *outgoing) { m.request.BusyPolicy = policy }
}

// WithExpectedTurn names the turn that the user saw. The message is refused (TURN_NOT_RUNNING) when another one runs. It
// goes with the policies STEER and INTERRUPT.
func WithExpectedTurn(turnID string) SendOption {
	return func(m *outgoing) { m.request.ExpectedTurnId = turnID }
}

// WithSender names whoever sends the message, for programs and for people.
func WithSender(sender, name string) SendOption {
	return func(m *outgoing) { m.request.Sender, m.request.SenderName = sender, name }
}

// WithMetadata keeps facts of the client with the message: a value that is a JSON object. Models never see them.
func WithMetadata(facts any) SendOption {
	return func(m *outgoing) {
		encoded, err := json.Marshal(facts)
		if err != nil {
			m.err = err
		}
		m.request.MetadataJson = string(encoded)
	}
}

// WithRequestID names the message, so that a program that was restarted can send it again. A name is made up unless set.
func WithRequestID(name string) SendOption {
	return func(m *outgoing) { m.request.RequestId = name }
}

// WithTools lets the model call these tools in this turn. [Client.Ask] runs them; with [Client.Send] the program runs them,
// for example with [Client.ServeTools].
func WithTools(tools ...*Tool) SendOption {
	return func(m *outgoing) {
		m.tools = append(m.tools, tools...)
		for _, tool := range tools {
			m.request.Tools = append(m.request.Tools, tool.definition)
		}
	}
}

// WithRequest changes the request itself, for what has no option.
func WithRequest(change func(*pb.SendMessageRequest)) SendOption {
	return func(m *outgoing) { change(m.request) }
}
