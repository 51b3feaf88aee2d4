package turnwire_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	turnwire "github.com/turnwire/turnwire/clients/go"
	pb "github.com/turnwire/turnwire/clients/go/opencode"
)

// fake answers as the contract says that a server in trouble does, which a real one does not do on demand.
type fake struct {
	pb.UnimplementedMessageServiceServer
	pb.UnimplementedEventServiceServer
	pb.UnimplementedSessionServiceServer
	pb.UnimplementedTurnServiceServer

	mu       sync.Mutex
	failures []error // each is the answer of one call
	names    []string
	tokens   []string
	headers  []metadata.MD
	batches  [][]*pb.WatchEventsResponse // each is one stream
}

func (f *fake) fail(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	header, _ := metadata.FromIncomingContext(ctx)
	f.headers = append(f.headers, header)
	if len(f.failures) == 0 {
		return nil
	}
	failure := f.failures[0]
	f.failures = f.failures[1:]
	return failure
}

func (f *fake) SendMessage(ctx context.Context, request *pb.SendMessageRequest) (*pb.SendMessageResponse, error) {
	f.mu.Lock()
	f.names = append(f.names, request.GetRequestId())
	f.mu.Unlock()
	return &pb.SendMessageResponse{SessionId: "ses_1", MessageId: "msg_1", TurnId: "trn_1", ResumeToken: "token_0"}, f.fail(ctx)
}

func (f *fake) AbortSession(ctx context.Context, _ *pb.AbortSessionRequest) (*pb.AbortSessionResponse, error) {
	return &pb.AbortSessionResponse{}, f.fail(ctx)
}

func (f *fake) ListMessages(ctx context.Context, request *pb.ListMessagesRequest) (*pb.ListMessagesResponse, error) {
	if request.GetPageToken() == "" {
		return &pb.ListMessagesResponse{
			Messages: []*pb.SessionMessage{said("msg_2", "One")}, NextPageToken: "page_2", Sequence: 4, ResumeToken: "token_4",
		}, f.fail(ctx)
	}
	return &pb.ListMessagesResponse{
		Messages: []*pb.SessionMessage{{MessageId: "msg_1"}}, Sequence: 9, ResumeToken: "token_9",
	}, f.fail(ctx)
}

func (f *fake) GetTurn(ctx context.Context, _ *pb.GetTurnRequest) (*pb.GetTurnResponse, error) {
	return &pb.GetTurnResponse{Turn: endedTurn()}, f.fail(ctx)
}

func endedTurn() *pb.Turn {
	return &pb.Turn{
		TurnId: "trn_1", Status: pb.TurnStatus_TURN_STATUS_ENDED, EndSequence: 6,
		FinishReason: pb.FinishReason_FINISH_REASON_STOP,
	}
}

// said returns a message of the answer with a part of text.
func said(messageID, text string) *pb.SessionMessage {
	content := &pb.Part_Text{Text: &pb.TextContent{Text: text}}
	return &pb.SessionMessage{
		MessageId: messageID, TurnId: "trn_1", Type: pb.MessageType_MESSAGE_TYPE_ASSISTANT,
		Parts: []*pb.Part{{Content: content, Status: pb.PartStatus_PART_STATUS_COMPLETE, ContentBytes: uint32(len(text))}},
	}
}

func (f *fake) WatchEvents(request *pb.WatchEventsRequest, stream grpc.ServerStreamingServer[pb.WatchEventsResponse]) error {
	f.mu.Lock()
	f.tokens = append(f.tokens, request.GetResumeToken())
	var batches []*pb.WatchEventsResponse
	if len(f.batches) > 0 {
		batches, f.batches = f.batches[0], f.batches[1:]
	}
	f.mu.Unlock()
	for _, batch := range batches {
		if batch == nil { // nothing more, and no end
			<-stream.Context().Done()
			return stream.Context().Err()
		}
		if err := stream.Send(batch); err != nil {
			return err
		}
	}
	return f.fail(stream.Context())
}

func (f *fake) serve(t *testing.T, options ...grpc.ServerOption) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(options...)
	pb.RegisterMessageServiceServer(server, f)
	pb.RegisterEventServiceServer(server, f)
	pb.RegisterSessionServiceServer(server, f)
	pb.RegisterTurnServiceServer(server, f)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

func refusal(code codes.Code, reason string, retry time.Duration) error {
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{Domain: "turnwire", Reason: reason, Metadata: map[string]string{"k": "v"}}}
	if retry > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(retry)})
	}
	made, err := status.New(code, "in words").WithDetails(details...)
	if err != nil {
		panic(err)
	}
	return made.Err()
}

// A message that the server could not take is sent again under the same name, after the time that the server asked for.
func TestSendIsRepeatedUnderOneName(t *testing.T) {
	server := &fake{failures: []error{
		refusal(codes.Unavailable, "STORAGE_BUSY", 50*time.Millisecond),
		refusal(codes.ResourceExhausted, "CONCURRENCY_LIMIT", 50*time.Millisecond),
	}}
	client := dialTo(t, server.serve(t))
	started := time.Now()
	if _, err := client.Send(background(t), "", "Hello"); err != nil {
		t.Fatal(err)
	}
	if waited := time.Since(started); waited < 100*time.Millisecond {
		t.Errorf("waited %v", waited)
	}
	if names := slices.Compact(server.names); len(names) != 1 || names[0] == "" || len(server.headers) != 3 {
		t.Errorf("%q in %d calls", names, len(server.headers))
	}
}

// A call of a stub gets a name too, and the caller's message stays as it is.
func TestCallsOfStubsAreNamed(t *testing.T) {
	server := &fake{failures: []error{refusal(codes.Unavailable, "STORAGE_BUSY", time.Millisecond)}}
	client := dialTo(t, server.serve(t))
	request := &pb.SendMessageRequest{SessionId: "ses_1"}
	if _, err := client.Messages.SendMessage(background(t), request); err != nil {
		t.Fatal(err)
	}
	if request.GetRequestId() != "" || server.names[0] == "" || server.names[0] != server.names[1] {
		t.Errorf("%q, %v", server.names, request)
	}
}

// What must not happen twice is not repeated: an abort that names no turn, and whatever has an error that stays.
func TestSomeCallsAreNotRepeated(t *testing.T) {
	busy := refusal(codes.Unavailable, "STORAGE_BUSY", time.Millisecond)
	server := &fake{failures: []error{busy, busy, nil, refusal(codes.FailedPrecondition, "TURN_IN_PROGRESS", time.Millisecond), refusal(codes.Unknown, "", 0)}}
	client := dialTo(t, server.serve(t))
	ctx := background(t)
	_, err := client.Abort(ctx, "ses_1", "")
	if !turnwire.HasReason(err, pb.ErrorReason_STORAGE_BUSY) {
		t.Error(err)
	}
	if _, err := client.Abort(ctx, "ses_1", "trn_1"); err != nil {
		t.Error(err)
	}
	if _, err := client.Send(ctx, "", "Hello"); !turnwire.HasReason(err, pb.ErrorReason_TURN_IN_PROGRESS) {
		t.Error(err)
	}
	var failed *turnwire.Error
	if _, err := client.Send(ctx, "", "Hello"); !errors.As(err, &failed) || failed.Code != codes.Unknown {
		t.Error(err)
	}
	if len(server.headers) != 5 {
		t.Errorf("%d calls", len(server.headers))
	}
}

// A call is repeated for as long as the client was told, and no longer than its context.
func TestRepeatingEnds(t *testing.T) {
	busy := refusal(codes.Unavailable, "STORAGE_BUSY", time.Hour)
	address := (&fake{failures: []error{busy, busy}}).serve(t)
	_, err := dialTo(t, address, turnwire.WithRetryTime(time.Minute)).Send(background(t), "", "Hello")
	var failed *turnwire.Error
	if !errors.As(err, &failed) || failed.RetryAfter != time.Hour || failed.Metadata["k"] != "v" || status.Code(err) != codes.Unavailable {
		t.Errorf("%#v", err)
	}
	ctx, cancel := context.WithTimeout(background(t), 50*time.Millisecond)
	defer cancel()
	_, err = dialTo(t, address, turnwire.WithRetryTime(2*time.Hour)).Send(ctx, "", "Hello")
	if !errors.Is(err, context.DeadlineExceeded) || !turnwire.HasReason(err, pb.ErrorReason_STORAGE_BUSY) {
		t.Error(err)
	}
}

// A watch of a list in pages begins at the place of the first one, and goes on at the last token whatever ended its stream.
func TestWatchResumesBehindItsLastToken(t *testing.T) {
	event := func(sequence uint64) *pb.SessionEvent {
		added := &pb.MessageAdded{Message: &pb.SessionMessage{MessageId: "msg_" + string(rune('0'+sequence))}}
		return &pb.SessionEvent{SessionId: "ses_1", Sequence: sequence, Kind: &pb.SessionEvent_MessageAdded{MessageAdded: added}}
	}
	deleted := &pb.SessionEvent{SessionId: "ses_1", Sequence: 8, Kind: &pb.SessionEvent_SessionDeleted{}}
	deleted.Kind = &pb.SessionEvent_SessionDeleted{SessionDeleted: &pb.SessionDeleted{}}
	caughtUp := &pb.SessionEvent{SessionId: "ses_1", Kind: &pb.SessionEvent_CaughtUp{CaughtUp: &pb.CaughtUp{}}}
	server := &fake{
		failures: []error{
			nil, nil, // the list
			refusal(codes.Unavailable, "SERVER_SHUTTING_DOWN", time.Millisecond), status.Error(codes.Canceled, "reset"), nil,
			refusal(codes.Internal, "INTERNAL", 0),
		},
		batches: [][]*pb.WatchEventsResponse{
			{{Events: []*pb.SessionEvent{event(5), event(6)}, ResumeToken: "token_6"}},
			nil,
			{{Events: []*pb.SessionEvent{caughtUp}}},
			{{Events: []*pb.SessionEvent{event(7)}, ResumeToken: "token_7"}},
			{{Events: []*pb.SessionEvent{deleted}, ResumeToken: "token_8"}},
		},
	}
	client := dialTo(t, server.serve(t))
	var held, told []string
	lost := 0
	for update, err := range client.Watch(background(t), "ses_1") {
		if err != nil {
			t.Fatal(err)
		}
		if update.Reread {
			told = each(update.Conversation.Messages(), (*pb.SessionMessage).GetMessageId)
		}
		if update.Lost != nil {
			lost++
		}
		if update.Event.GetSequence() == 7 {
			held = each(update.Conversation.Messages(), (*pb.SessionMessage).GetMessageId)
		}
	}
	equal(t, "read", told, []string{"msg_1", "msg_2", "msg_5", "msg_6"}) // once it had caught up
	equal(t, "messages", held, []string{"msg_1", "msg_2", "msg_5", "msg_6", "msg_7"})
	equal(t, "tokens", server.tokens, []string{"token_4", "token_6", "token_6", "token_6", "token_7"})
	if lost != 3 {
		t.Errorf("lost %d times", lost)
	}
}

// An answer whose events are no longer kept is read from the list, and what comes behind it is not missed: the turn may have
// ended since.
func TestAnswerIsReadAnew(t *testing.T) {
	more := said("msg_3", "two").GetParts()[0]
	resync := &pb.SessionEvent{SessionId: "ses_1", Kind: &pb.SessionEvent_Resync{Resync: &pb.Resync{}}}
	caughtUp := &pb.SessionEvent{SessionId: "ses_1", Kind: &pb.SessionEvent_CaughtUp{CaughtUp: &pb.CaughtUp{}}}
	more.Index = 1
	finished := &pb.SessionEvent_PartFinished{PartFinished: &pb.PartFinished{MessageId: "msg_2", Part: more}}
	ended := &pb.SessionEvent_TurnEnded{TurnEnded: &pb.TurnEnded{Turn: endedTurn()}}
	server := &fake{batches: [][]*pb.WatchEventsResponse{
		{{Events: []*pb.SessionEvent{resync}}},
		{
			{Events: []*pb.SessionEvent{caughtUp}, ResumeToken: "token_4"},
			{Events: []*pb.SessionEvent{{SessionId: "ses_1", Sequence: 5, Kind: finished}, {SessionId: "ses_1", Sequence: 6, Kind: ended}}},
		},
	}}
	answer, err := dialTo(t, server.serve(t)).Ask(background(t), "", "Hello")
	if err != nil {
		t.Fatal(err)
	}
	if all, err := answer.All(); err != nil || all != "One\ntwo" || answer.Turn() == nil {
		t.Errorf("%q, %v", all, err)
	}
	equal(t, "tokens", server.tokens, []string{"token_0", "token_4"})
}

// A server that sends no heartbeat is gone, whatever its connection says, and the watch begins another stream.
func TestSilentServerIsLeft(t *testing.T) {
	batch := func(token string) *pb.WatchEventsResponse {
		return &pb.WatchEventsResponse{Events: []*pb.SessionEvent{{SessionId: "ses_1"}}, ResumeToken: token}
	}
	server := &fake{batches: [][]*pb.WatchEventsResponse{{batch("token_1"), nil}, {batch("token_2"), nil}}}
	client := dialTo(t, server.serve(t), turnwire.WithSilence(50*time.Millisecond))
	var failed *turnwire.Error
	for update, err := range client.Watch(background(t), "ses_1", turnwire.FromToken("token_0")) {
		if err != nil {
			t.Fatal(err)
		}
		if update.Lost != nil && (!errors.As(update.Lost, &failed) || failed.Code != codes.Unavailable) {
			t.Error(update.Lost)
		}
		if update.ResumeToken == "token_2" {
			break
		}
	}
	equal(t, "tokens", server.tokens, []string{"token_0", "token_1"})
	if failed == nil {
		t.Error("the silence was not told")
	}
}

// Every call carries the token and the tenant; a watch whose token ended goes on with another one.
func TestTokensAreRenewed(t *testing.T) {
	server := &fake{
		failures: []error{nil, refusal(codes.Unauthenticated, "UNAUTHENTICATED", 0), refusal(codes.Unauthenticated, "UNAUTHENTICATED", 0), refusal(codes.Unauthenticated, "UNAUTHENTICATED", 0)},
		batches:  [][]*pb.WatchEventsResponse{{{Events: []*pb.SessionEvent{{SessionId: "ses_1"}}, ResumeToken: "token_1"}}},
	}
	calls := 0
	client := dialTo(t, server.serve(t), turnwire.WithTenant("acme"), turnwire.WithTokenSource(func(context.Context) (string, error) {
		calls++
		return strings.Repeat("x", calls), nil
	}))
	if _, err := client.Send(background(t), "", "Hello"); err != nil {
		t.Fatal(err)
	}
	var last error
	for _, err := range client.Watch(background(t), "ses_1", turnwire.FromToken("token_0")) {
		last = err
	}
	if !turnwire.HasReason(last, pb.ErrorReason_UNAUTHENTICATED) {
		t.Error(last)
	}
	var seen []string
	for _, header := range server.headers {
		seen = append(seen, header.Get("authorization")...)
		if tenant := header.Get("turnwire-tenant"); !slices.Equal(tenant, []string{"acme"}) {
			t.Error(tenant)
		}
	}
	equal(t, "tokens", seen, []string{"Bearer x", "Bearer xx", "Bearer xxx"})
}

// A token travels in the open only within this machine.
func TestTokenNeedsTLS(t *testing.T) {
	for address, wanted := range map[string]bool{
		"127.0.0.1:50051": true, "localhost:50051": true, "[::1]:50051": true, "unix:///run/turnwire.sock": true,
		"dns:///localhost:1": true, "chat.example.com:443": false, "dns:///10.0.0.1:443": false, "localhost.example.com:1": false,
	} {
		client, err := turnwire.Dial(address, turnwire.WithToken("secret"))
		if (err == nil) != wanted {
			t.Errorf("%s: %v", address, err)
		}
		if err == nil {
			_ = client.Close()
		}
		for _, option := range []turnwire.Option{turnwire.WithTLS(nil), turnwire.WithInsecureToken()} {
			client, err := turnwire.Dial(address, turnwire.WithToken("secret"), option)
			if err != nil {
				t.Errorf("%s: %v", address, err)
				continue
			}
			_ = client.Close()
		}
	}
}

// With TLS the server is asked who it is; a certificate that nobody trusts ends the call at once.
func TestTLS(t *testing.T) {
	made := httptest.NewUnstartedServer(nil)
	made.StartTLS() // has a certificate for 127.0.0.1
	t.Cleanup(made.Close)
	address := (&fake{}).serve(t, grpc.Creds(credentials.NewServerTLSFromCert(&made.TLS.Certificates[0])))
	trusted := x509.NewCertPool()
	trusted.AddCert(made.Certificate())
	client := dialTo(t, address, turnwire.WithTLS(&tls.Config{RootCAs: trusted}), turnwire.WithToken("secret"))
	if _, err := client.Send(background(t), "", "Hello"); err != nil {
		t.Error(err)
	}
	var failed *turnwire.Error
	_, err := dialTo(t, address, turnwire.WithTLS(nil)).Send(background(t), "", "Hello")
	if !errors.As(err, &failed) || failed.Code != codes.Unavailable || !strings.Contains(failed.Message, "certificate") {
		t.Error(err)
	}
}
