package turnwire

import (
	"context"
	"iter"

	"google.golang.org/protobuf/proto"

	pb "github.com/turnwire/turnwire/clients/go/opencode"
)

// AllSessions yields the sessions that the request's filters let through, all when it is nil, page by page in the request's
// order: the last changed first. One that changes meanwhile may come twice or not. An error is the last thing that it yields.
func (c *Client) AllSessions(ctx context.Context, request *pb.ListSessionsRequest) iter.Seq2[*pb.SessionInfo, error] {
	return func(yield func(*pb.SessionInfo, error) bool) {
		page := &pb.ListSessionsRequest{PageSize: 100}
		proto.Merge(page, request)
		for {
			listed, err := c.Sessions.ListSessions(ctx, page)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, session := range listed.GetSessions() {
				if !yield(session, nil) {
					return
				}
			}
			if page.PageToken = listed.GetNextPageToken(); page.PageToken == "" {
				return
			}
		}
	}
}

// Fork copies a session, once, with its conversation up to and with a message; "" copies all of it.
//
// Errors have the reasons SESSION_NOT_FOUND, MESSAGE_NOT_FOUND, TURN_IN_PROGRESS and others of ForkSession.
func (c *Client) Fork(ctx context.Context, sessionID, throughMessageID string) (*pb.SessionInfo, error) {
	forked, err := c.Sessions.ForkSession(ctx, &pb.ForkSessionRequest{
		SessionId: sessionID, ThroughMessageId: throughMessageID,
	})
	return forked.GetSession(), err
}

// Revert hides a message and all that come after it, once. RestoreSession of the sessions brings them back until the next turn.
//
// Errors have the reasons SESSION_NOT_FOUND, MESSAGE_NOT_FOUND, TURN_IN_PROGRESS and others of RevertSession.
func (c *Client) Revert(ctx context.Context, sessionID, messageID string) (*pb.RevertSessionResponse, error) {
	return c.Sessions.RevertSession(ctx, &pb.RevertSessionRequest{SessionId: sessionID, BeforeMessageId: messageID})
}
