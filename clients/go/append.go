package turnwire

import (
	"context"
	"crypto/rand"

	"google.golang.org/protobuf/proto"

	pb "github.com/turnwire/turnwire/clients/go/opencode"
)

// Append stores a message without a turn: of a user, of a model that the program asked itself, or the result of a call. A
// request without a name (request_id) gets one, the same for every attempt, so it is stored once.
//
// Errors have the reasons SESSION_NOT_FOUND, INVALID_REQUEST, TOOL_CALL_NOT_FOUND, QUOTA_EXCEEDED and others of
// AppendMessage. After an error with a reason nothing is stored.
func (c *Client) Append(ctx context.Context, request *pb.AppendMessageRequest) (*pb.AppendMessageResponse, error) {
	if request.GetRequestId() == "" {
		request = proto.CloneOf(request)
		request.RequestId = rand.Text()
	}
	return c.Messages.AppendMessage(ctx, request)
}

// StartTurn lets a model answer a stored message of the user, or go on behind the results of tool calls with which the
// conversation ends: then the message is the one that has them. Of the options, those that say how to answer count.
// [Client.Watch] with [FromToken] of the answer's resume token shows the turn.
//
// Errors have the reasons MESSAGE_NOT_FOUND, TURN_EXISTS, TOOL_CALLS_OPEN, TURN_IN_PROGRESS and others of StartTurn.
func (c *Client) StartTurn(
	ctx context.Context, sessionID, messageID string, options ...SendOption,
) (*pb.StartTurnResponse, error) {
	message, err := newOutgoing(sessionID, "", options)
	if err != nil {
		return nil, err
	}
	chosen := message.request
	answered := &pb.TurnSettings{
		Agent: chosen.Agent, System: chosen.System, Options: chosen.Options, Tools: chosen.Tools,
	}
	if model := chosen.GetModel(); model != nil {
		answered.Model = &pb.ModelName{ProviderId: model.GetProvider().GetId(), ModelId: model.GetModelId()}
	}
	return c.Turns.StartTurn(ctx, &pb.StartTurnRequest{
		SessionId:     sessionID,
		UserMessageId: messageID,
		Settings:      answered,
		BusyPolicy:    chosen.GetBusyPolicy(),
		RequestId:     chosen.GetRequestId(),
	})
}

// TextPart returns a part of a message with text.
func TextPart(text string) *pb.MessagePart {
	return &pb.MessagePart{Content: &pb.MessagePart_Text{Text: &pb.TextPart{Text: text}}}
}

// CallPart returns a part of an answer with a tool call; a nil result leaves it open.
func CallPart(name, callID, inputJSON string, result *pb.AppendedToolResult) *pb.MessagePart {
	call := &pb.AppendedToolCall{Name: name, CallId: callID, InputJson: inputJSON, Result: result}
	return &pb.MessagePart{Content: &pb.MessagePart_ToolCall{ToolCall: call}}
}

// ResultPart returns a part with the result of the call that has the provider's id.
func ResultPart(callID, output string, isError bool) *pb.MessagePart {
	result := &pb.ToolResultContent{CallId: callID, Output: output, IsError: isError}
	return &pb.MessagePart{Content: &pb.MessagePart_ToolResult{ToolResult: result}}
}
