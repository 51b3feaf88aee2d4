package turnwire_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	turnwire "github.com/turnwire/turnwire/clients/go"
	pb "github.com/turnwire/turnwire/clients/go/opencode"
)

// vector is a file of clients/vectors; its README says what the fields are.
type vector struct {
	Description string          `json:"description"`
	Start       json.RawMessage `json:"start"`
	Batches     []string        `json:"batches"`
	Want        struct {
		Messages        []json.RawMessage `json:"messages"`
		Waiting         []string          `json:"waiting"`
		WaitingMessages []json.RawMessage `json:"waiting_messages"`
		Permissions     []string          `json:"permissions"`
		Questions       []string          `json:"questions"`
		Status          string            `json:"status"`
		Session         json.RawMessage   `json:"session"`
		Deleted         bool              `json:"deleted"`
		NeedsReread     bool              `json:"needs_reread"`
		ResumeToken     string            `json:"resume_token"`
	} `json:"want"`
}

// A conversation holds what the server answers when it is asked, whatever the stream of events was.
func TestVectors(t *testing.T) {
	files, err := filepath.Glob("../vectors/*.json")
	if err != nil || len(files) == 0 {
		t.Skip("needs the fold vectors in clients/vectors")
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var one vector
			if err := json.Unmarshal(content, &one); err != nil {
				t.Fatal(err)
			}
			one.check(t)
		})
	}
}

func (v *vector) check(t *testing.T) {
	conversation, token := v.fold(t)
	if conversation.NeedsReread() != v.Want.NeedsReread {
		t.Fatalf("%s: needs reread: %v", v.Description, conversation.NeedsReread())
	}
	if v.Want.NeedsReread {
		return
	}
	same(t, known(t, conversation.Messages()), messages(t, v.Want.Messages))
	same(t, known(t, conversation.Waiting()), messages(t, v.Want.WaitingMessages))
	entries, _ := conversation.Queue()
	equal(t, "waiting", each(entries, (*pb.QueueEntry).GetMessageId), v.Want.Waiting)
	equal(t, "permissions", sorted(each(conversation.Permissions(), (*pb.PermissionRequest).GetId)), sorted(v.Want.Permissions))
	equal(t, "questions", sorted(each(conversation.Questions(), (*pb.Question).GetQuestionId)), sorted(v.Want.Questions))
	equal(t, "status", []string{conversation.Status().String()}, []string{v.Want.Status})
	equal(t, "token", []string{token}, []string{v.Want.ResumeToken})
	if conversation.Deleted() != v.Want.Deleted {
		t.Errorf("deleted: %v", conversation.Deleted())
	}
	if session := string(v.Want.Session); session == "null" {
		if conversation.Session() != nil {
			t.Errorf("session: %v, wanted none", conversation.Session())
		}
	} else if want := read(t, v.Want.Session, &pb.SessionInfo{}); !proto.Equal(conversation.Session(), want) {
		t.Errorf("session: %v, wanted %v", conversation.Session(), want)
	}
}

// fold returns the conversation after the last batch, and the token that a watch goes on from.
func (v *vector) fold(t *testing.T) (*turnwire.Conversation, string) {
	conversation, token := turnwire.NewConversation(""), ""
	if v.Start != nil {
		list := read(t, v.Start, &pb.ListMessagesResponse{})
		conversation.Load(list.GetMessages(), list.GetSequence())
		token = list.GetResumeToken()
	}
	for _, encoded := range v.Batches {
		bytes, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			t.Fatal(err)
		}
		batch := &pb.WatchEventsResponse{}
		if err := proto.Unmarshal(bytes, batch); err != nil {
			t.Fatal(err)
		}
		for _, event := range batch.GetEvents() {
			conversation.Apply(event)
			conversation.Messages() // reading changes nothing
		}
		if batch.GetResumeToken() != "" {
			token = batch.GetResumeToken()
		}
	}
	return conversation, token
}

// What a conversation has shown never changes: a reader may keep it while deltas, results and the end of the turn come.
func TestShownMessagesNeverChange(t *testing.T) {
	conversation := turnwire.NewConversation("ses_1")
	kept := map[*pb.SessionMessage]string{}
	for event := range stream(200) {
		conversation.Apply(event)
		for _, message := range conversation.Messages() {
			kept[message] = message.String()
		}
	}
	if len(kept) < 200 {
		t.Fatalf("%d states were shown", len(kept))
	}
	for message, shown := range kept {
		if message.String() != shown {
			t.Fatalf("shown as %s, now %s", shown, message)
		}
	}
}

// A conversation may be read by any goroutine while events come.
func TestConversationIsSafeForConcurrentUse(t *testing.T) {
	conversation := turnwire.NewConversation("ses_1")
	var readers sync.WaitGroup
	done := make(chan struct{})
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				for _, message := range conversation.Messages() {
					_ = turnwire.TextOf(message)
				}
				conversation.Session()
				conversation.Permissions()
			}
		})
	}
	for event := range stream(20_000) {
		conversation.Apply(event)
	}
	close(done)
	readers.Wait()
	if text := conversation.Text("msg_1"); !strings.HasSuffix(text, "delta 0019995 ") {
		t.Error(text)
	}
}

// Events of another session are none of the conversation's business.
func TestEventsOfOtherSessionsChangeNothing(t *testing.T) {
	conversation := turnwire.NewConversation("ses_2")
	for event := range stream(10) {
		if event.GetSessionId() == "ses_1" {
			conversation.Apply(event)
		}
	}
	if conversation.Messages() != nil && len(conversation.Messages()) > 0 || conversation.Sequence() != 0 {
		t.Error(conversation.Messages())
	}
}

// stream yields the stream of n events that clients/vectors/README.md describes.
func stream(n int) func(yield func(*pb.SessionEvent) bool) {
	const size = len("delta 0000000 ")
	part := func(text string, status pb.PartStatus) *pb.Part {
		content := &pb.Part_Text{Text: &pb.TextContent{Text: text}}
		return &pb.Part{PartId: "prt_1", Status: status, Content: content, ContentBytes: uint32(len(text))}
	}
	message := func(status pb.MessageStatus) *pb.SessionMessage {
		return &pb.SessionMessage{
			MessageId: "msg_1", SessionId: "ses_1", Type: pb.MessageType_MESSAGE_TYPE_ASSISTANT, Status: status,
		}
	}
	return func(yield func(*pb.SessionEvent) bool) {
		added := &pb.MessageAdded{Message: message(pb.MessageStatus_MESSAGE_STATUS_STREAMING)}
		started := &pb.PartStarted{MessageId: "msg_1", Part: part("", pb.PartStatus_PART_STATUS_STREAMING)}
		if !yield(&pb.SessionEvent{Sequence: 1, SessionId: "ses_1", Kind: &pb.SessionEvent_MessageAdded{MessageAdded: added}}) ||
			!yield(&pb.SessionEvent{Kind: &pb.SessionEvent_PartStarted{PartStarted: started}}) {
			return
		}
		var text strings.Builder
		for i := range n - 4 {
			piece := fmt.Sprintf("delta %07d ", i)
			text.WriteString(piece)
			delta := &pb.PartDelta{
				MessageId: "msg_1", Text: piece, Offset: uint32(i * size), EndOffset: uint32((i + 1) * size),
			}
			if !yield(&pb.SessionEvent{Kind: &pb.SessionEvent_PartDelta{PartDelta: delta}}) {
				return
			}
		}
		finished := &pb.PartFinished{MessageId: "msg_1", Part: part(text.String(), pb.PartStatus_PART_STATUS_COMPLETE)}
		ended := message(pb.MessageStatus_MESSAGE_STATUS_COMPLETE)
		ended.FinishReason = pb.FinishReason_FINISH_REASON_STOP
		if !yield(&pb.SessionEvent{Sequence: 2, SessionId: "ses_1", Kind: &pb.SessionEvent_PartFinished{PartFinished: finished}}) {
			return
		}
		yield(&pb.SessionEvent{
			Sequence: 3, SessionId: "ses_1",
			Kind: &pb.SessionEvent_MessageFinished{MessageFinished: &pb.MessageFinished{Message: ended}},
		})
	}
}

// BenchmarkConversation folds 100,000 events, and reads the text after each batch of 100.
func BenchmarkConversation(b *testing.B) {
	const events = 100_000
	decoded := slices.Collect(stream(events))
	b.ReportAllocs()
	for b.Loop() {
		conversation := turnwire.NewConversation("ses_1")
		read := 0
		for i, event := range decoded {
			conversation.Apply(event)
			if i%100 == 99 {
				read += len(conversation.Text("msg_1"))
			}
		}
		if text := conversation.Text("msg_1"); len(text) != 1_399_944 || !strings.HasSuffix(text, "delta 0099995 ") || read == 0 {
			b.Fatal(len(text))
		}
	}
	b.ReportMetric(float64(events)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// known returns messages without the fields that only newer clients know: JSON has none of them.
func known(t *testing.T, held []*pb.SessionMessage) []*pb.SessionMessage {
	t.Helper()
	found := make([]*pb.SessionMessage, len(held))
	for i, message := range held {
		encoded, err := protojson.Marshal(message)
		if err != nil {
			t.Fatal(err)
		}
		found[i] = read(t, encoded, &pb.SessionMessage{})
	}
	return found
}

func messages(t *testing.T, encoded []json.RawMessage) []*pb.SessionMessage {
	t.Helper()
	found := make([]*pb.SessionMessage, len(encoded))
	for i, one := range encoded {
		found[i] = read(t, one, &pb.SessionMessage{})
	}
	return found
}

func read[M proto.Message](t *testing.T, encoded []byte, message M) M {
	t.Helper()
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(encoded, message); err != nil {
		t.Fatal(err)
	}
	return message
}

func each[In any](values []In, of func(In) string) []string {
	found := make([]string, len(values))
	for i, value := range values {
		found[i] = of(value)
	}
	return found
}

func sorted(values []string) []string {
	values = slices.Clone(values)
	slices.Sort(values)
	return values
}

func equal(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) && len(got)+len(want) > 0 {
		t.Errorf("%s: %q, wanted %q", what, got, want)
	}
}

// Whatever bytes come as events, a conversation can be read.
func FuzzConversation(f *testing.F) {
	files, _ := filepath.Glob("../vectors/*.json")
	for _, file := range files {
		var one vector
		content, err := os.ReadFile(file)
		if err != nil || json.Unmarshal(content, &one) != nil {
			f.Fatal(file, err)
		}
		for _, batch := range one.Batches {
			decoded, _ := base64.StdEncoding.DecodeString(batch)
			f.Add(decoded)
		}
	}
	f.Fuzz(func(t *testing.T, encoded []byte) {
		batch := &pb.WatchEventsResponse{}
		if proto.Unmarshal(encoded, batch) != nil {
			return
		}
		conversation := turnwire.NewConversation("")
		for range 2 {
			for _, event := range batch.GetEvents() {
				conversation.Apply(event)
				for _, message := range append(conversation.Messages(), conversation.Waiting()...) {
					_ = message.String()
				}
				_ = conversation.Session().String()
			}
		}
	})
}
