package turnwire_test

import (
	"testing"

	pb "github.com/turnwire/turnwire/clients/go/opencode"
)

// Sessions are copied and taken back, and lists of several pages are read to their end.
func TestSessionsAreListedCopiedAndTakenBack(t *testing.T) {
	client, ctx := dial(t), background(t)
	answer, err := client.Ask(ctx, "", "Hello")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := answer.All(); err != nil {
		t.Fatal(err)
	}
	id, message := answer.Sent.GetSessionId(), answer.Sent.GetMessageId()
	part, err := client.Fork(ctx, id, message)
	if err != nil {
		t.Fatal(err)
	}
	reverted, err := client.Revert(ctx, id, message)
	if err != nil || reverted.GetHiddenMessages() != 2 {
		t.Fatal(reverted, err)
	}
	found := map[string]bool{}
	for session, err := range client.AllSessions(ctx, &pb.ListSessionsRequest{PageSize: 1}) {
		if err != nil {
			t.Fatal(err)
		}
		found[session.GetId()] = true
	}
	if !found[id] || !found[part.GetId()] {
		t.Error(found)
	}
	for range client.AllSessions(ctx, nil) {
		break
	}
	copied, err := client.Messages.ListMessages(ctx, &pb.ListMessagesRequest{SessionId: part.GetId()})
	if err != nil || len(copied.GetMessages()) != 1 {
		t.Error(copied, err)
	}
	if nobody, err := client.Fork(ctx, "ses_none", ""); err == nil || nobody != nil {
		t.Error(nobody, err)
	}
}
