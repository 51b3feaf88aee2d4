package turnwire_test

import (
	"testing"

	turnwire "github.com/turnwire/turnwire/clients/go"
	pb "github.com/turnwire/turnwire/clients/go/opencode"
)

// What an agent of one's own stores is shown, and gone on from.
func TestAppendedAnswersAreGoneOnFrom(t *testing.T) {
	client, ctx := dial(t), background(t)
	session, err := client.Sessions.CreateSession(ctx, &pb.CreateSessionRequest{})
	if err != nil {
		t.Fatal(err)
	}
	id := session.GetId()
	store := func(kind pb.MessageType, parts ...*pb.MessagePart) string {
		t.Helper()
		stored, err := client.Append(ctx, &pb.AppendMessageRequest{SessionId: id, Type: kind, Parts: parts})
		if err != nil {
			t.Fatal(err)
		}
		return stored.GetMessageId()
	}
	store(pb.MessageType_MESSAGE_TYPE_USER, turnwire.TextPart("What is there?"))
	call := turnwire.CallPart("look", "c1", "{}", nil)
	answer := store(pb.MessageType_MESSAGE_TYPE_ASSISTANT, turnwire.TextPart("I look."), call)
	if _, err := client.StartTurn(ctx, id, answer); !turnwire.HasReason(err, pb.ErrorReason_TOOL_CALLS_OPEN) {
		t.Error(err)
	}
	at := store(pb.MessageType_MESSAGE_TYPE_TOOL_RESULT, turnwire.ResultPart("c1", "a cat", false))
	started, err := client.StartTurn(ctx, id, at, turnwire.WithModel("offline/echo"), turnwire.WithSystem("be brief"))
	if err != nil {
		t.Fatal(err)
	}
	for update, err := range client.Watch(ctx, id, turnwire.FromToken(started.GetResumeToken())) {
		if err != nil {
			t.Fatal(err)
		}
		if update.Event.GetTurnEnded() != nil {
			break
		}
	}
	listed, err := client.Messages.ListMessages(ctx, &pb.ListMessagesRequest{SessionId: id})
	if err != nil {
		t.Fatal(err)
	}
	messages := listed.GetMessages()
	if len(messages) != 4 || messages[1].GetParts()[1].GetToolUse().GetOutput() != "a cat" {
		t.Fatal(messages)
	}
	if !messages[1].GetModelRun().GetIsReported() || messages[3].GetModelRun().GetIsReported() {
		t.Error(messages[1].GetModelRun(), messages[3].GetModelRun())
	}
}
