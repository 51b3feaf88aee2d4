package remote

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	turnwire "github.com/turnwire/turnwire/clients/go"
	pb "github.com/turnwire/turnwire/clients/go/opencode"
)

// Follow follows a session until the context ends or the session is deleted. It tells after each change what the
// conversation is, or why the connection is lost; it then goes on by itself. It returns why it cannot go on; nil after a
// deletion.
func (s *Server) Follow(
	ctx context.Context, sessionID string, tell func(conversation *turnwire.Conversation, lost error),
) error {
	for update, err := range s.client.Watch(ctx, sessionID) {
		if err != nil {
			return err
		}
		if !update.More {
			tell(update.Conversation, update.Lost)
		}
	}
	return nil
}

// FollowAll follows the durable events of all sessions until the context ends. It returns why it cannot go on.
func (s *Server) FollowAll(ctx context.Context, tell func(*pb.SessionEvent)) error {
	for event, err := range s.client.WatchAll(ctx) {
		if err != nil {
			return err
		}
		tell(event)
	}
	return nil
}

// Links tells whether the server can be reached, each time that this changes, until the context ends.
func (s *Server) Links(ctx context.Context, tell func(online bool)) {
	connection, ok := s.client.Conn().(*grpc.ClientConn)
	if !ok {
		return
	}
	state := connection.GetState()
	for {
		switch state {
		case connectivity.Ready:
			tell(true)
		case connectivity.TransientFailure:
			tell(false)
		default: // on the way to one of the two
		}
		if !connection.WaitForStateChange(ctx, state) {
			return
		}
		state = connection.GetState()
	}
}
