// Package remote is what the program asks of a server, over the Go client.
//
// It holds no state but the connection. Every method is one thing that a person does or looks at; its errors are those of
// package turnwire.
package remote

import (
	"context"

	"google.golang.org/protobuf/types/known/fieldmaskpb"

	turnwire "github.com/turnwire/turnwire/clients/go"
	pb "github.com/turnwire/turnwire/clients/go/opencode"
)

// sessionsPage is how many sessions a list shows before more are asked for.
const sessionsPage = 200

// Server is a connection to a server. It is safe for concurrent use.
type Server struct {
	client *turnwire.Client
}

// New returns a server that is reached through a client. The caller closes the client.
func New(client *turnwire.Client) *Server {
	return &Server{client: client}
}

// Sessions returns the sessions that changed last: those of the archive, or those that are not in it, whose title has a text.
func (s *Server) Sessions(ctx context.Context, archived bool, title string) ([]*pb.SessionInfo, error) {
	answer, err := s.client.Sessions.ListSessions(ctx, &pb.ListSessionsRequest{
		PageSize: sessionsPage, Archived: &archived, TitleText: title,
	})
	return answer.GetSessions(), err
}

// Session returns one session with what it has used.
func (s *Server) Session(ctx context.Context, sessionID string) (*pb.GetSessionResponse, error) {
	return s.client.Sessions.GetSession(ctx, &pb.GetSessionRequest{SessionId: sessionID})
}

// Rename gives a session a title; "" takes it away.
func (s *Server) Rename(ctx context.Context, sessionID, title string) error {
	_, err := s.client.Sessions.UpdateSession(ctx, &pb.UpdateSessionRequest{
		SessionId:  sessionID,
		Settings:   &pb.SessionSettings{Title: title},
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"title"}},
	})
	return err
}

// Archive puts a session away, or takes it out again.
func (s *Server) Archive(ctx context.Context, sessionID string, away bool) error {
	if away {
		_, err := s.client.Sessions.ArchiveSession(ctx, &pb.ArchiveSessionRequest{SessionId: sessionID})
		return err
	}
	_, err := s.client.Sessions.UnarchiveSession(ctx, &pb.UnarchiveSessionRequest{SessionId: sessionID})
	return err
}

// Delete removes a session with its messages and files.
func (s *Server) Delete(ctx context.Context, sessionID string) error {
	_, err := s.client.Sessions.DeleteSession(ctx, &pb.DeleteSessionRequest{SessionId: sessionID})
	return err
}

// Send stores a message and returns when that is durable. The same request may be sent again.
func (s *Server) Send(ctx context.Context, request *pb.SendMessageRequest) (*pb.SendMessageResponse, error) {
	return s.client.Messages.SendMessage(ctx, request)
}

// Abort ends a turn and keeps the messages that wait.
func (s *Server) Abort(ctx context.Context, sessionID, turnID string) error {
	_, err := s.client.Messages.AbortSession(ctx, &pb.AbortSessionRequest{
		SessionId: sessionID, ExpectedTurnId: turnID, KeepQueue: true,
	})
	return err
}

// Permit answers a permission request.
func (s *Server) Permit(ctx context.Context, answer *pb.PermissionResponse) error {
	_, err := s.client.Permissions.RespondToPermission(ctx, answer)
	return err
}

// Answer answers a question of a tool.
func (s *Server) Answer(ctx context.Context, answer *pb.AnswerQuestionRequest) error {
	_, err := s.client.Questions.AnswerQuestion(ctx, answer)
	return err
}

// EditQueued replaces what a waiting message says, or what it does to the running turn.
func (s *Server) EditQueued(ctx context.Context, request *pb.EditQueuedMessageRequest) error {
	_, err := s.client.Turns.EditQueuedMessage(ctx, request)
	return err
}

// MoveQueued moves a waiting message before another one; "" moves it to the end.
func (s *Server) MoveQueued(ctx context.Context, sessionID, messageID, beforeID string) error {
	_, err := s.client.Turns.MoveQueuedMessage(ctx, &pb.MoveQueuedMessageRequest{
		SessionId: sessionID, MessageId: messageID, BeforeMessageId: beforeID,
	})
	return err
}

// RemoveQueued takes a waiting message out.
func (s *Server) RemoveQueued(ctx context.Context, sessionID, messageID string) error {
	_, err := s.client.Turns.RemoveQueuedMessage(ctx, &pb.RemoveQueuedMessageRequest{
		SessionId: sessionID, MessageId: messageID,
	})
	return err
}

// Regenerate answers a message again, with new parts an edited form of it.
func (s *Server) Regenerate(ctx context.Context, sessionID, messageID string, parts []*pb.MessagePart) error {
	_, err := s.client.Turns.RegenerateMessage(ctx, &pb.RegenerateMessageRequest{
		SessionId: sessionID, MessageId: messageID, NewParts: parts,
	})
	return err
}

// Alternatives returns the messages that stand in the place of one, the oldest first.
func (s *Server) Alternatives(ctx context.Context, sessionID, messageID string) ([]*pb.SessionMessage, error) {
	answer, err := s.client.Turns.ListAlternatives(ctx, &pb.ListAlternativesRequest{
		SessionId: sessionID, MessageId: messageID, PageSize: 1000,
	})
	return answer.GetMessages(), err
}

// SelectAlternative leads the conversation through a message.
func (s *Server) SelectAlternative(ctx context.Context, sessionID, messageID string) error {
	_, err := s.client.Turns.SelectAlternative(ctx, &pb.SelectAlternativeRequest{
		SessionId: sessionID, MessageId: messageID,
	})
	return err
}

// Search finds messages by their words, the best first: of one session, or of all when it is "".
func (s *Server) Search(ctx context.Context, query, sessionID string) ([]*pb.SearchHit, error) {
	request := &pb.SearchMessagesRequest{Query: query, PageSize: 100}
	if sessionID != "" {
		request.SessionIds = []string{sessionID}
	}
	answer, err := s.client.Search.SearchMessages(ctx, request)
	return answer.GetHits(), err
}

// Explain returns what a model would be sent; with a draft, as if that were sent too.
func (s *Server) Explain(ctx context.Context, sessionID, draft string) (*pb.ExplainContextResponse, error) {
	request := &pb.ExplainContextRequest{SessionId: sessionID}
	if draft != "" {
		request.Parts = TextParts(draft)
	}
	return s.client.Messages.ExplainContext(ctx, request)
}

// Usage is what a session and its tenant have used.
type Usage struct {
	// Session has tokens and money of the session.
	Session *pb.GetSessionResponse
	// Month has what the tenant used this month, by model.
	Month []*pb.UsageRow
	// Quotas are those of the tenant.
	Quotas []*pb.Quota
}

// Usage returns what was used. Without a session only what the tenant used.
func (s *Server) Usage(ctx context.Context, sessionID string) (*Usage, error) {
	var usage Usage
	var err error
	if sessionID != "" {
		if usage.Session, err = s.Session(ctx, sessionID); err != nil {
			return nil, err
		}
	}
	month, err := s.client.Usage.QueryUsage(ctx, &pb.QueryUsageRequest{
		GroupBy: []pb.UsageDimension{pb.UsageDimension_USAGE_DIMENSION_MODEL},
	})
	if err != nil {
		return nil, err
	}
	usage.Month = month.GetRows()
	quotas, err := s.client.Usage.ListQuotas(ctx, &pb.ListQuotasRequest{})
	if err != nil {
		return nil, err
	}
	usage.Quotas = quotas.GetQuotas()
	return &usage, nil
}

// TextParts returns the parts of a message that is one text.
func TextParts(text string) []*pb.MessagePart {
	return []*pb.MessagePart{{Content: &pb.MessagePart_Text{Text: &pb.TextPart{Text: text}}}}
}
