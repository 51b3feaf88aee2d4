package turnwire

import (
	"context"
	"slices"
	"time"

	pb "github.com/turnwire/turnwire/clients/go/opencode"
)

// ServeOption changes how [Client.ServeTools] runs tools.
type ServeOption func(*attendant)

// WithLeases says who claims the calls, by a name to show to people, and for how long: 1 second to 1 hour, a minute unless
// set. A lease is renewed while the tool runs. When a program dies, others can run its call once the lease has ended.
func WithLeases(holder string, lasting time.Duration) ServeOption {
	return func(a *attendant) { a.holder, a.lease = holder, lasting }
}

// WithoutLeases runs calls without claiming them, which saves a round trip for a program that is the only one to run them.
func WithoutLeases() ServeOption {
	return func(a *attendant) { a.holder = "" }
}

// WithConcurrency bounds the calls that run at once: 8 unless set.
func WithConcurrency(calls int) ServeOption {
	return func(a *attendant) { a.slots = make(chan struct{}, max(1, calls)) }
}

// ServeTools runs the calls of these tools until the context ends: those of one session, or with an empty id those of all
// sessions of the caller's tenant. Calls that were open before, and those that come while the connection is lost, run too. A
// program claims each call before it runs it, so that of several ones that serve the same tool one runs it.
// It returns why it ended, when what it started has ended: the error of the context, or one after which it cannot go on.
//
// A session knows the tools when they are in its settings ([Tool.Definition]) or come with a message ([WithTools]).
func (c *Client) ServeTools(ctx context.Context, sessionID string, tools []*Tool, options ...ServeOption) error {
	ctx, cancel := context.WithCancelCause(ctx)
	work := c.newAttendant(ctx, cancel, &outgoing{tools: tools})
	defer work.close()
	for _, option := range options {
		option(work)
	}
	err := c.follow(ctx, follower{
		begin: func(context.Context) (*pb.WatchEventsRequest, error) {
			return &pb.WatchEventsRequest{
				SessionId: sessionID, DeltaMode: pb.DeltaMode_DELTA_MODE_NONE,
				Kinds: []pb.EventKind{pb.EventKind_EVENT_KIND_TOOL_CALL_UPDATED, pb.EventKind_EVENT_KIND_SESSION_DELETED},
			}, nil
		},
		take: func(batch *pb.WatchEventsResponse) error {
			for _, event := range batch.GetEvents() {
				switch {
				case event.GetCaughtUp() != nil: // calls that open from now on come as events
					if err := c.findCalls(ctx, sessionID, work); err != nil {
						return err
					}
				case event.GetToolCallUpdated() != nil:
					work.attend(event)
				case event.GetSessionDeleted() != nil && sessionID != "":
					return errStop
				}
			}
			return nil
		},
		lost: func(error) error { return nil },
	})
	return err
}

// findCalls starts the open calls that the program can run and does not run yet.
func (c *Client) findCalls(ctx context.Context, sessionID string, work *attendant) error {
	names := make([]string, 0, len(work.tools))
	for name := range work.tools {
		names = append(names, name)
	}
	open := map[string]bool{}
	for part := range slices.Chunk(names, 128) { // as many as one request may name
		request := &pb.ListOpenToolCallsRequest{SessionId: sessionID, ToolNames: part, PageSize: 1000}
		for {
			page, err := c.Tools.ListOpenToolCalls(ctx, request)
			if err != nil {
				return err
			}
			for _, call := range page.GetCalls() {
				open[call.GetToolCall().GetId()] = true
				work.consider(&Call{SessionID: call.GetSessionId(), TurnID: call.GetTurnId(), State: call.GetToolCall()})
			}
			if page.GetNextPageToken() == "" {
				break
			}
			request.PageToken = page.GetNextPageToken()
		}
	}
	work.forgetOthers(open)
	return nil
}
