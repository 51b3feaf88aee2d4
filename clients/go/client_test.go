package turnwire_test

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	turnwire "github.com/turnwire/turnwire/clients/go"
	pb "github.com/turnwire/turnwire/clients/go/opencode"
)

const worlds = "één twee 世界 🌍"

// An answer comes once, byte for byte, whether in pieces or at once.
func TestAskStreamsEachByteOnce(t *testing.T) {
	client := dial(t)
	for _, text := range []string{worlds, "/rate 50\n" + worlds} {
		answer, err := client.Ask(background(t), "", text)
		if err != nil {
			t.Fatal(err)
		}
		all, err := answer.All()
		if err != nil || all != worlds {
			t.Errorf("%q, %v", all, err)
		}
		if turn := answer.Turn(); turn.GetFinishReason() != pb.FinishReason_FINISH_REASON_STOP || turn.GetTurnId() != answer.Sent.GetTurnId() {
			t.Error(turn)
		}
	}
}

// Reasoning and text are told apart, and the parts of an answer stand on lines of their own.
func TestPiecesAreOfTheirKind(t *testing.T) {
	client := dial(t)
	answer, err := client.Ask(background(t), "", "/reason First I think.\nThen I speak.")
	if err != nil {
		t.Fatal(err)
	}
	said := map[turnwire.PieceKind]string{}
	for piece, err := range answer.Pieces() {
		if err != nil {
			t.Fatal(err)
		}
		said[piece.Kind] += piece.Text
	}
	if said[turnwire.PieceReasoning] != "First I think." || said[turnwire.PieceText] != "Then I speak." {
		t.Error(said)
	}
}

// An answer may be larger than what gRPC takes unless told otherwise.
func TestLargeAnswers(t *testing.T) {
	client := dial(t)
	text := strings.Repeat("世", 5<<20/len("世"))
	answer, err := client.Ask(background(t), "", text)
	if err != nil {
		t.Fatal(err)
	}
	if all, err := answer.All(); err != nil || all != text {
		t.Errorf("%d bytes of %d, %v", len(all), len(text), err)
	}
	for update, err := range client.Watch(background(t), answer.Sent.GetSessionId()) {
		if err != nil {
			t.Fatal(err)
		}
		isAsStored(t, client, update.Conversation)
		return
	}
}

// A message that joins the running turn is answered by that turn.
func TestSteeredMessage(t *testing.T) {
	client := dial(t)
	ctx := background(t)
	asked, steered := make(chan string), make(chan struct{})
	waits := weather(func(ctx context.Context, _ place) (string, error) {
		asked <- turnwire.CallFromContext(ctx).SessionID
		select {
		case <-steered:
			return "Rain", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	})
	first, err := client.Ask(ctx, "", "Go.\n/tool weather {\"city\": \"Utrecht\"}", turnwire.WithTools(waits))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := first.All()
		ended <- err
	}()
	second, err := client.Ask(ctx, <-asked, "And tomorrow?", turnwire.WithBusyPolicy(pb.BusyPolicy_BUSY_POLICY_STEER),
		turnwire.WithExpectedTurn(first.Sent.GetTurnId()))
	if err != nil {
		t.Fatal(err)
	}
	close(steered)
	if _, err := second.All(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if second.Turn().GetTurnId() != first.Sent.GetTurnId() || second.Turn().GetFinishReason() != pb.FinishReason_FINISH_REASON_STOP {
		t.Error(second.Turn())
	}
}

// A turn that failed is an error with the reason of the failure and the turn, after the text that came.
func TestFailedTurnIsAnError(t *testing.T) {
	client := dial(t)
	answer, err := client.Ask(background(t), "", "/error refused 2\none two three", turnwire.WithModel("offline/echo"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = answer.All()
	var failed *turnwire.Error
	if !errors.As(err, &failed) || failed.Reason != "PROVIDER_REQUEST_REFUSED" || failed.Turn.GetTurnId() != answer.Sent.GetTurnId() {
		t.Fatalf("%#v", err)
	}
}

// An error has code, reason, and the fields that are wrong.
func TestErrorsAreTyped(t *testing.T) {
	client := dial(t)
	_, err := client.Send(background(t), "ses_none", "Hello")
	if !turnwire.HasReason(err, pb.ErrorReason_SESSION_NOT_FOUND) {
		t.Error(err)
	}
	_, err = client.Send(background(t), "", "Hello", turnwire.WithModel("offline/none"))
	var failed *turnwire.Error
	if !errors.As(err, &failed) || failed.Code != codes.InvalidArgument || failed.Reason != "MODEL_UNKNOWN" ||
		len(failed.Fields) != 1 || !strings.HasPrefix(failed.Fields[0].Field, "model") {
		t.Errorf("%#v", err)
	}
	for _, err := range client.Watch(background(t), "ses_none") {
		if !turnwire.HasReason(err, pb.ErrorReason_SESSION_NOT_FOUND) {
			t.Error(err)
		}
	}
	_, err = client.Send(background(t), "", "Hello", turnwire.WithMetadata(func() {}))
	if err == nil {
		t.Error("a function is no JSON")
	}
}

// A message with a name is stored once, however often it is sent.
func TestSendIsNamed(t *testing.T) {
	client := dial(t)
	first, err := client.Send(background(t), "", "Hello", turnwire.WithRequestID(t.Name()))
	if err != nil {
		t.Fatal(err)
	}
	second, err := client.Send(background(t), "", "Hello", turnwire.WithRequestID(t.Name()))
	if err != nil || second.GetMessageId() != first.GetMessageId() || second.GetDisposition() != pb.Disposition_DISPOSITION_DUPLICATE {
		t.Errorf("%v, %v", second, err)
	}
	if _, err = client.Send(background(t), first.GetSessionId(), "Hello again"); err != nil {
		t.Error("messages without a name get one each:", err)
	}
}

// Every option of a message reaches the server.
func TestOptionsOfAMessage(t *testing.T) {
	client := dial(t)
	answer, err := client.Ask(background(t), "", "Look.",
		turnwire.WithModel("offline/echo"), turnwire.WithAgent("default"), turnwire.WithSystem("Be brief."),
		turnwire.WithSender("u1", "Ada"), turnwire.WithMetadata(map[string]int{"n": 1}),
		turnwire.WithFile("note.txt", "", []byte("It rains.")),
		turnwire.WithGeneration(&pb.GenerationOptions{ReasoningEffort: "low"}),
		turnwire.WithRequest(func(request *pb.SendMessageRequest) { request.RequestId = t.Name() }),
	)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := answer.All(); err != nil || !strings.Contains(text, "note.txt") {
		t.Errorf("%q, %v", text, err)
	}
	stored, err := client.Messages.GetMessage(background(t), &pb.GetMessageRequest{
		SessionId: answer.Sent.GetSessionId(), MessageId: answer.Sent.GetMessageId(),
	})
	if err != nil {
		t.Fatal(err)
	}
	message := stored.GetMessage()
	if message.GetSenderName() != "Ada" || message.GetMetadataJson() != `{"n":1}` || message.GetRequestId() != t.Name() || len(message.GetParts()) != 2 {
		t.Error(message)
	}
}

// A watch begins with the whole conversation, tells each event with the conversation as it is with it, and ends when the
// session is deleted.
func TestWatchHoldsTheConversation(t *testing.T) {
	client := dial(t)
	ctx := background(t)
	before, err := client.Ask(ctx, "", "Before.")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := before.All(); err != nil {
		t.Fatal(err)
	}
	session := before.Sent.GetSessionId()
	var first *turnwire.Update
	var sent *pb.SendMessageResponse
	var conversation *turnwire.Conversation
	for update, err := range client.Watch(ctx, session) {
		if err != nil {
			t.Fatal(err)
		}
		conversation = update.Conversation
		if first == nil {
			first = &update
			if !update.Reread || len(conversation.Messages()) != 2 {
				t.Fatal(update, conversation.Messages())
			}
			if sent, err = client.Send(ctx, session, "/rate 100\n/words 20"); err != nil {
				t.Fatal(err)
			}
		}
		if turn := update.Event.GetTurnEnded().GetTurn(); turn.GetTurnId() == sent.GetTurnId() && turn != nil {
			if conversation.EndedTurn() != turn || len(conversation.Messages()) != 4 {
				t.Error(conversation.Messages())
			}
		}
		if update.Event.GetSessionStatusChanged().GetStatus() == pb.SessionStatus_SESSION_STATUS_IDLE {
			isAsStored(t, client, conversation)
			if _, err := client.Sessions.DeleteSession(ctx, &pb.DeleteSessionRequest{SessionId: session}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !conversation.Deleted() || len(conversation.Messages()) > 0 {
		t.Error(conversation.Messages())
	}
}

// A watch that began with nothing but a token, or at the beginning, holds what the events since then tell.
func TestWatchBeginsWhereItIsTold(t *testing.T) {
	client := dial(t)
	ctx := background(t)
	answer, err := client.Ask(ctx, "", "Hello.")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := answer.All(); err != nil {
		t.Fatal(err)
	}
	for option, wanted := range map[string]turnwire.WatchOption{
		"token": turnwire.FromToken(answer.Sent.GetResumeToken()), "beginning": turnwire.FromBeginning(), "now": turnwire.FromNow(),
	} {
		for update, err := range client.Watch(ctx, answer.Sent.GetSessionId(), wanted, turnwire.WithoutDeltas()) {
			if err != nil {
				t.Fatal(err)
			}
			if update.Event.GetCaughtUp() == nil {
				continue
			}
			if update.ResumeToken == "" || update.Conversation.Session().GetId() != answer.Sent.GetSessionId() {
				t.Error(update)
			}
			if option == "now" && len(update.Conversation.Messages()) != 0 || option != "now" && len(update.Conversation.Messages()) != 2 {
				t.Error(option, update.Conversation.Messages())
			}
			break
		}
	}
}

// What no event tells is read anew: a conversation that got messages back.
func TestWatchReadsAnew(t *testing.T) {
	client := dial(t)
	ctx := background(t)
	answer, err := client.Ask(ctx, "", "Hello.")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := answer.All(); err != nil {
		t.Fatal(err)
	}
	session := answer.Sent.GetSessionId()
	reread := 0
	for update, err := range client.Watch(ctx, session) {
		if err != nil {
			t.Fatal(err)
		}
		if update.Reread {
			reread++
		}
		if update.Event.GetCaughtUp() == nil {
			continue
		}
		if reread == 2 { // the list came, and what is live behind it
			isAsStored(t, client, update.Conversation)
			if len(update.Conversation.Messages()) != 2 {
				t.Error(update.Conversation.Messages())
			}
			return
		}
		if _, err := client.Sessions.ClearSession(ctx, &pb.ClearSessionRequest{SessionId: session}); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Sessions.RestoreSession(ctx, &pb.RestoreSessionRequest{SessionId: session}); err != nil {
			t.Fatal(err)
		}
	}
	t.Error("the watch ended")
}

// A watch that joins while messages wait holds them in their order, and the turn that runs.
func TestWatchHoldsWhatWaits(t *testing.T) {
	client := dial(t)
	ctx := background(t)
	running, err := client.Send(ctx, "", "/rate 20\n/words 40")
	if err != nil {
		t.Fatal(err)
	}
	var waiting []string
	for _, text := range []string{"Second.", "Third."} {
		sent, err := client.Send(ctx, running.GetSessionId(), text)
		if err != nil {
			t.Fatal(err)
		}
		waiting = append(waiting, sent.GetMessageId())
	}
	for update, err := range client.Watch(ctx, running.GetSessionId()) {
		if err != nil {
			t.Fatal(err)
		}
		if update.Reread {
			held := update.Conversation
			equal(t, "waiting", each(held.Waiting(), (*pb.SessionMessage).GetMessageId), waiting)
			if len(held.Messages()) != 2 || held.Messages()[0].GetMessageId() != running.GetMessageId() || held.Session() == nil {
				t.Error(held.Messages())
			}
			break
		}
	}
	if _, err := client.Abort(ctx, running.GetSessionId(), running.GetTurnId()); err != nil {
		t.Error(err)
	}
}

// A watch of all sessions tells what happens in each of them.
func TestWatchAll(t *testing.T) {
	client := dial(t)
	ctx := background(t)
	var wanted []string
	for event, err := range client.WatchAll(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if event.GetCaughtUp() != nil && wanted == nil {
			for range 2 {
				sent, err := client.Send(ctx, "", "Hello.")
				if err != nil {
					t.Fatal(err)
				}
				wanted = append(wanted, sent.GetTurnId())
			}
		}
		if event.GetTurnEnded() != nil {
			wanted = slices.DeleteFunc(wanted, func(id string) bool { return id == event.GetTurnId() })
			if len(wanted) == 0 {
				return
			}
		}
	}
}

// Whoever cancels the context gets its error, and the turn goes on without a watcher.
func TestContextEndsAnAnswer(t *testing.T) {
	client := dial(t)
	ctx, cancel := context.WithCancel(background(t))
	defer cancel()
	answer, err := client.Ask(ctx, "", "/rate 50\n/words 30")
	if err != nil {
		t.Fatal(err)
	}
	var last error
	for _, err := range answer.Text() {
		cancel()
		last = err
	}
	if !errors.Is(last, context.Canceled) {
		t.Error(last)
	}
	if text, err := answer.All(); !errors.Is(err, context.Canceled) {
		t.Error(text, err)
	}
	for update, err := range client.Watch(background(t), answer.Sent.GetSessionId()) {
		if err != nil {
			t.Fatal(err)
		}
		if update.Event.GetTurnEnded().GetTurn().GetFinishReason() == pb.FinishReason_FINISH_REASON_STOP ||
			update.Event.GetCaughtUp() != nil && update.Conversation.Status() == pb.SessionStatus_SESSION_STATUS_IDLE {
			return
		}
	}
}

// A loop that is left early leaves nothing behind; dial checks that.
func TestLoopsMayBeLeft(t *testing.T) {
	client := dial(t)
	answer, err := client.Ask(background(t), "", "/rate 20\n/words 20")
	if err != nil {
		t.Fatal(err)
	}
	for range answer.Pieces() {
		break
	}
	for range client.Watch(background(t), answer.Sent.GetSessionId()) {
		break
	}
	for range client.WatchAll(background(t)) {
		break
	}
}

// As long as nobody has answered at the address, calls and watches fail at once.
func TestWrongAddressIsNoticed(t *testing.T) {
	client := dialTo(t, "127.0.0.1:1")
	var failed *turnwire.Error
	if _, err := client.Send(background(t), "", "Hello"); !errors.As(err, &failed) || failed.Code != codes.Unavailable {
		t.Error(err)
	}
	for _, err := range client.Watch(background(t), "ses_1") {
		if !errors.As(err, &failed) || failed.Code != codes.Unavailable {
			t.Error(err)
		}
	}
}

// A watch, an answer and a call go on over the death of the server, and hold what it stored.
func TestServerKilledAndBack(t *testing.T) {
	mortal(t)
	client := dial(t)
	ctx := background(t)
	sent, err := client.Send(ctx, "", "/rate 20\n/words 30")
	if err != nil {
		t.Fatal(err)
	}
	lost, killed := 0, false
	var follow *pb.SendMessageResponse
	for update, err := range client.Watch(ctx, sent.GetSessionId()) {
		if err != nil {
			t.Fatal(err)
		}
		if update.Event.GetPartDelta() != nil && !killed {
			killed = true
			if err := control(t, "kill"); err != nil {
				t.Fatal(err)
			}
			back := make(chan error, 1)
			go func() { back <- control(t, "start") }() // while the next call is on its way
			if follow, err = client.Send(ctx, sent.GetSessionId(), "Are you there?"); err != nil {
				t.Fatal(err)
			}
			if err := <-back; err != nil {
				t.Fatal(err)
			}
		}
		if update.Lost != nil {
			lost++
		}
		if follow != nil && update.Conversation.EndedTurn().GetTurnId() == follow.GetTurnId() && update.Conversation.Status() == pb.SessionStatus_SESSION_STATUS_IDLE {
			isAsStored(t, client, update.Conversation)
			break
		}
	}
	if lost == 0 {
		t.Error("the connection was never lost")
	}
}

// An answer that begins after the server was stopped, or killed, and started again is read as if nothing had happened. So is the
// result of a tool.
func TestAnswerAfterARestart(t *testing.T) {
	mortal(t)
	client := dial(t)
	for _, end := range []string{"stop", "kill"} {
		tool := weather(func(ctx context.Context, _ place) (string, error) {
			return "Rain", errors.Join(control(t, end), control(t, "start"))
		})
		answer, err := client.Ask(background(t), "", "Go.\n/tool weather {\"city\": \"Utrecht\"}", turnwire.WithTools(tool))
		if err != nil {
			t.Fatal(err)
		}
		if all, err := answer.All(); err != nil || all != "Go.\nweather returned: Rain" {
			t.Errorf("%s: %q, %v", end, all, err)
		}
	}
}

// What the documentation shows works.
func TestExamples(t *testing.T) {
	serverAddress(t)
	for wanted, example := range map[string]func(){
		"How is the weather in Utrecht?": ExampleNewTool,
		"That session is gone.":          ExampleHasReason,
	} {
		if printed := output(t, example); !strings.Contains(printed, wanted) {
			t.Errorf("%q is not in %q", wanted, printed)
		}
	}
}

// output returns what a function prints.
func output(t *testing.T, run func()) string {
	t.Helper()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	screen := os.Stdout
	os.Stdout = writer
	defer func() { os.Stdout = screen }()
	run() // prints less than a pipe holds
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	printed, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	return string(printed)
}
