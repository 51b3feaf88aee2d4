package turnwire

import (
	"context"
	"encoding/json"

	pb "github.com/turnwire/turnwire/clients/go/opencode"
)

// Reply is an answer to a permission request.
type Reply string

// The answers to a permission request.
const (
	AllowOnce   Reply = "once"   // this call may run
	AllowAlways Reply = "always" // this call may run, and in this session what the request's patterns match
	Reject      Reply = "reject" // the call may not run; the model reads the reason
)

// AnswerPermission answers a permission request. The first answer counts: the same one again is confirmed, another one is
// refused (PERMISSION_ALREADY_ANSWERED). The reason may be "".
func (c *Client) AnswerPermission(ctx context.Context, request *pb.PermissionRequest, reply Reply, reason string) error {
	_, err := c.Permissions.RespondToPermission(ctx, &pb.PermissionResponse{
		SessionId: request.GetSessionId(), PermissionId: request.GetId(), Response: string(reply), Reason: reason,
	})
	return err
}

// QuestionReply is an answer to a question of a tool. Make it with [Accept], [Decline] or [Cancel].
type QuestionReply struct {
	Action      pb.QuestionAction
	ContentJSON string // what was filled in, a JSON object
	Reason      string // for people; the tool does not get it
}

// Accept answers a form with what was filled in, a value that is a JSON object, or agrees to open a link (nil). It returns a
// reply that declines when the value is no JSON.
func Accept(content any) QuestionReply {
	reply := QuestionReply{Action: pb.QuestionAction_QUESTION_ACTION_ACCEPT}
	if content == nil {
		return reply
	}
	encoded, err := json.Marshal(content)
	if err != nil {
		return Decline(err.Error())
	}
	reply.ContentJSON = string(encoded)
	return reply
}

// Decline says no to a question.
func Decline(reason string) QuestionReply {
	return QuestionReply{Action: pb.QuestionAction_QUESTION_ACTION_DECLINE, Reason: reason}
}

// Cancel puts a question away without a decision.
func Cancel(reason string) QuestionReply {
	return QuestionReply{Action: pb.QuestionAction_QUESTION_ACTION_CANCEL, Reason: reason}
}

// AnswerQuestion answers a question of a tool. The first answer counts, another one is refused (QUESTION_ALREADY_ANSWERED).
func (c *Client) AnswerQuestion(ctx context.Context, question *pb.Question, reply QuestionReply) error {
	_, err := c.Questions.AnswerQuestion(ctx, &pb.AnswerQuestionRequest{
		SessionId: question.GetSessionId(), QuestionId: question.GetQuestionId(),
		Action: reply.Action, ContentJson: reply.ContentJSON, Reason: reply.Reason,
	})
	return err
}

// WithPermissions answers the permission requests that come while [Client.Ask] runs, in a goroutine for each one. An empty reply
// leaves the request open for somebody else.
func WithPermissions(answer func(context.Context, *pb.PermissionRequest) (reply Reply, reason string)) SendOption {
	return func(m *outgoing) { m.onPermission = answer }
}

// WithQuestions answers the questions of tools that come while [Client.Ask] runs, in a goroutine for each one. A reply without
// an action leaves the question open for somebody else.
func WithQuestions(answer func(context.Context, *pb.Question) QuestionReply) SendOption {
	return func(m *outgoing) { m.onQuestion = answer }
}
