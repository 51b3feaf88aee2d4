package turnwire

import (
	"context"

	pb "github.com/turnwire/turnwire/clients/go/opencode"
)

// Abort ends the running turn of a session and drops the messages that wait; what the model had written is kept. It returns when
// that is durable. With a turn's id it ends this turn only, and is tried again when the answer is lost; with "" it ends any
// turn, once. When nothing runs, or another turn than expected, it does nothing. AbortSession of [Client.Messages] can keep the
// messages that wait.
//
// Errors have the reason SESSION_NOT_FOUND and others of AbortSession.
func (c *Client) Abort(ctx context.Context, sessionID, turnID string) (*pb.AbortSessionResponse, error) {
	return c.Messages.AbortSession(ctx, &pb.AbortSessionRequest{SessionId: sessionID, ExpectedTurnId: turnID})
}
