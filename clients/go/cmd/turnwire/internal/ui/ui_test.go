package ui

import (
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/turnwire/turnwire/clients/go/opencode"

	"github.com/turnwire/turnwire/clients/go/cmd/turnwire/internal/text"
)

func added(id, words string, kind pb.MessageType, status pb.MessageStatus) *pb.SessionEvent {
	return &pb.SessionEvent{Kind: &pb.SessionEvent_MessageAdded{MessageAdded: &pb.MessageAdded{Message: &pb.SessionMessage{
		MessageId: id, TurnId: "turn_" + id, Type: kind, Status: status,
		Parts: []*pb.Part{{Content: &pb.Part_Text{Text: &pb.TextContent{Text: words}}, ContentBytes: uint32(len(words))}},
	}}}}
}

func said(id, words string) *pb.SessionEvent {
	return added(id, words, pb.MessageType_MESSAGE_TYPE_USER, pb.MessageStatus_MESSAGE_STATUS_COMPLETE)
}

func answers(id, words string) *pb.SessionEvent {
	return added(id, words, pb.MessageType_MESSAGE_TYPE_ASSISTANT, pb.MessageStatus_MESSAGE_STATUS_STREAMING)
}

func runs(running bool) *pb.SessionEvent {
	status := pb.SessionStatus_SESSION_STATUS_IDLE
	if running {
		status = pb.SessionStatus_SESSION_STATUS_RUNNING
	}
	return &pb.SessionEvent{Kind: &pb.SessionEvent_SessionStatusChanged{
		SessionStatusChanged: &pb.SessionStatusChanged{Status: status},
	}}
}

func waits(ids ...string) []*pb.SessionEvent {
	var events []*pb.SessionEvent
	queue := &pb.QueueChanged{Revision: 1}
	for _, id := range ids {
		events = append(events, added(id, "words of "+id, pb.MessageType_MESSAGE_TYPE_USER, pb.MessageStatus_MESSAGE_STATUS_QUEUED))
		queue.Entries = append(queue.Entries, &pb.QueueEntry{MessageId: id, BusyPolicy: pb.BusyPolicy_BUSY_POLICY_QUEUE})
	}
	return append(events, &pb.SessionEvent{Kind: &pb.SessionEvent_QueueChanged{QueueChanged: queue}})
}

func asks(id string) *pb.SessionEvent {
	return &pb.SessionEvent{Kind: &pb.SessionEvent_PermissionAsked{PermissionAsked: &pb.PermissionAsked{
		Permission: &pb.PermissionRequest{Id: id, Type: "tool " + id, SessionId: "ses_1", Pattern: []string{"fs.*"}},
	}}}
}

func replied(id string) *pb.SessionEvent {
	return &pb.SessionEvent{Kind: &pb.SessionEvent_PermissionReplied{
		PermissionReplied: &pb.PermissionReplied{PermissionId: id},
	}}
}

func TestTheFirstMessageCreatesTheSession(t *testing.T) {
	d := drive(t, "")
	d.write("hello")
	d.press("enter")
	d.until("it is sent", func() bool { return d.server.count() == 1 && d.app.chat.sessionID == "ses_1" })
	if request := d.server.last().(*pb.SendMessageRequest); request.GetSessionId() != "" ||
		textOf(request.GetParts()) != "hello" || request.GetRequestId() == "" {
		t.Errorf("sent %v", request)
	}
	d.until("the session is followed", func() bool { return d.app.chat.conversation != nil })
	d.happens(said("m1", "hello"))
	d.shows("● You")
}

func TestMessagesKeepTheirOrderAndNoneIsLost(t *testing.T) {
	d := drive(t, "")
	d.server.hold = make(chan struct{})
	for _, word := range []string{"one", "two", "three"} {
		d.write(word)
		d.press("enter")
	}
	d.shows("sending 3…")
	close(d.server.hold)
	d.until("all are sent", func() bool { return d.server.count() == 3 && len(d.app.chat.outbox) == 0 })
	for i, want := range []string{"one", "two", "three"} {
		request := d.server.calls[i].(*pb.SendMessageRequest)
		if textOf(request.GetParts()) != want || i > 0 && request.GetSessionId() != "ses_1" {
			t.Errorf("message %d is %v", i, request)
		}
	}
}

func TestAMessageThatIsRefusedComesBackIntoTheInput(t *testing.T) {
	d := drive(t, "ses_1")
	d.server.fails = errRefused
	d.write("precious")
	d.press("enter")
	d.write("later words")
	d.shows("refused by the test")
	if got := d.app.input.text(); !strings.Contains(got, "precious") || !strings.Contains(got, "later words") {
		t.Errorf("the input has %q", got)
	}
}

func TestDeltasAreShownAsTheyCome(t *testing.T) {
	d := drive(t, "ses_1")
	d.happens(runs(true), answers("m1", ""))
	whole := ""
	for i := range 50 {
		word := fmt.Sprintf("word%d ", i)
		d.happens(&pb.SessionEvent{Kind: &pb.SessionEvent_PartDelta{PartDelta: &pb.PartDelta{
			MessageId: "m1", Offset: uint32(len(whole)), Text: word, EndOffset: uint32(len(whole) + len(word)),
		}}})
		whole += word
	}
	d.shows("word49")
	d.shows("answering…")
}

func TestAFloodOfDeltasDrawsAtMostThirtyTimesASecond(t *testing.T) {
	d := drive(t, "ses_1")
	d.happens(answers("m1", ""))
	d.shows("writing…")
	began, frames, offset := time.Now(), 0, uint32(0)
	for time.Since(began) < time.Second/2 {
		d.happens(&pb.SessionEvent{Kind: &pb.SessionEvent_PartDelta{PartDelta: &pb.PartDelta{
			MessageId: "m1", Offset: offset, Text: "x ", EndOffset: offset + 2,
		}}})
		offset += 2
		select {
		case message := <-d.messages:
			if _, ok := message.(chatMsg); ok {
				frames++
			}
			d.take(message)
		default:
		}
	}
	if frames == 0 || frames > 17 || offset < 200 {
		t.Errorf("%d frames of %d deltas", frames, offset/2)
	}
}

func TestAbortNamesTheTurnThatIsSeen(t *testing.T) {
	d := drive(t, "ses_1")
	d.happens(said("m1", "go"), runs(true))
	d.shows("answering…")
	d.press("ctrl+c")
	d.until("it is aborted", func() bool { return d.server.count() == 1 })
	if got := d.server.last().([]string); got[1] != "turn_m1" {
		t.Errorf("aborts %v", got)
	}
	d.happens(runs(false))
	d.gone("answering…")
	d.write("draft")
	d.press("ctrl+c")
	if d.app.input.text() != "" || d.quit {
		t.Error("the input is not empty")
	}
}

func TestInterruptAndSteerNameTheTurn(t *testing.T) {
	d := drive(t, "ses_1")
	d.happens(said("m1", "go"), runs(true))
	d.shows("answering…")
	for key, policy := range map[string]pb.BusyPolicy{
		"ctrl+x": pb.BusyPolicy_BUSY_POLICY_INTERRUPT, "ctrl+s": pb.BusyPolicy_BUSY_POLICY_STEER,
	} {
		sent := d.server.count()
		d.write("other way")
		d.press(key)
		d.until("it is sent", func() bool { return d.server.count() == sent+1 && len(d.app.chat.outbox) == 0 })
		if got := d.server.last().(*pb.SendMessageRequest); got.GetBusyPolicy() != policy || got.GetExpectedTurnId() != "turn_m1" {
			t.Errorf("%s sends %v", key, got)
		}
	}
}

func TestTypedLettersAreNoAnswers(t *testing.T) {
	d := drive(t, "ses_1")
	d.write("ye")
	d.happens(asks("p1"))
	d.shows("tool p1")
	d.write("ay")
	if d.server.count() != 0 || d.app.input.text() != "yeay" {
		t.Fatalf("%d answers, %q", d.server.count(), d.app.input.text())
	}
	d.press("ctrl+y")
	d.press("y") // at once
	if d.server.count() != 0 {
		t.Fatal("answered before a person could read it")
	}
	d.shows("A always (fs.*)")
	d.clock = d.clock.Add(time.Second)
	d.press("y")
	d.press("y")
	d.until("it is answered", func() bool { return d.server.count() > 0 })
	if got := d.server.last().(*pb.PermissionResponse); got.GetPermissionId() != "p1" || got.GetResponse() != "once" {
		t.Errorf("answers %v", got)
	}
	d.clock = d.clock.Add(time.Second)
	d.happens(asks("p2"), replied("p1"))
	d.shows("tool p2")
	d.press("a")
	d.clock = d.clock.Add(time.Second)
	d.press("r")
	d.write("not mine")
	d.press("enter")
	d.until("it is denied", func() bool { return d.server.count() == 2 })
	if got := d.server.last().(*pb.PermissionResponse); got.GetPermissionId() != "p2" || got.GetResponse() != "reject" ||
		got.GetReason() != "not mine" {
		t.Errorf("answers %v", got)
	}
	d.happens(replied("p2"))
	d.gone("tool p2")
	if d.app.region != onInput {
		t.Error("the input does not have the focus")
	}
}

func TestTheKeysAreThoseOfTheConsole(t *testing.T) {
	d := drive(t, "ses_1")
	for at, want := range []struct{ key, response string }{{"y", "once"}, {"A", "always"}, {"n", "reject"}} {
		id := fmt.Sprintf("p%d", at)
		d.happens(asks(id))
		d.shows("tool " + id)
		d.press("ctrl+y")
		d.clock = d.clock.Add(time.Second)
		d.press("a", "d") // once in one client, always in another: nothing here
		if d.server.count() != at {
			t.Fatalf("%q answered", "a")
		}
		d.press(want.key)
		d.until("it is answered", func() bool { return d.server.count() == at+1 })
		if got := d.server.last().(*pb.PermissionResponse); got.GetPermissionId() != id || got.GetResponse() != want.response {
			t.Errorf("%q answers %v", want.key, got)
		}
		d.happens(replied(id))
		d.gone("tool " + id)
	}
}

func TestEveryTypeOfMessageIsShown(t *testing.T) {
	d := drive(t, "ses_1")
	for name, kind := range pb.MessageType_value {
		event := added("m "+name, "words of "+name, pb.MessageType(kind), pb.MessageStatus_MESSAGE_STATUS_COMPLETE)
		message := event.GetMessageAdded().GetMessage()
		message.MetadataJson = `{"from": "a host"}`
		if kind == int32(pb.MessageType_MESSAGE_TYPE_TOOL_RESULT) {
			message.Parts = []*pb.Part{{Content: &pb.Part_ToolResult{ToolResult: &pb.ToolResultContent{Output: "words of " + name}}}}
		}
		d.happens(event)
		d.shows("words of " + name)
	}
}

func TestAFormIsFilledInFieldByField(t *testing.T) {
	d := drive(t, "ses_1")
	schema := `{"type":"object","required":["colour","coats"],"properties":{
		"colour":{"type":"string","enum":["r","g"],"enumNames":["Red","Green"],"title":"Colour"},
		"coats":{"type":"integer","default":1,"minimum":1},
		"dry":{"type":"boolean"},"note":{"type":"string"},
		"tags":{"type":"array","items":{"enum":["a","b","c"]}}}}`
	d.happens(&pb.SessionEvent{Kind: &pb.SessionEvent_QuestionAsked{QuestionAsked: &pb.QuestionAsked{Question: &pb.Question{
		QuestionId: "q1", SessionId: "ses_1", Source: "painter", Prompt: "Which\x1b[31m colour?",
		Form: &pb.Question_Schema{Schema: &pb.SchemaForm{SchemaJson: schema}},
	}}}})
	d.shows("painter asks")
	d.press("ctrl+y")
	d.clock = d.clock.Add(time.Second)
	d.shows("1/5 Colour")
	d.write("blue")
	d.press("enter")
	d.shows("choose by number or word")
	d.press("ctrl+u")
	d.write("2")
	d.press("enter")
	d.shows("2/5 coats")
	d.press("enter") // the default
	d.write("maybe")
	d.press("enter")
	d.shows("write yes or no")
	d.press("ctrl+u")
	d.write("yes")
	d.press("enter", "enter")
	d.shows("5/5 tags")
	d.write("1, c")
	d.press("enter")
	d.shows("note: (left out)")
	d.press("y")
	d.until("it is sent", func() bool { return d.server.count() == 1 })
	got := d.server.last().(*pb.AnswerQuestionRequest)
	if want := `{"coats":1,"colour":"g","dry":true,"tags":["a","c"]}`; got.GetContentJson() != want {
		t.Errorf("sent %s, want %s", got.GetContentJson(), want)
	}
}

func TestALinkIsShownWholeWithItsHost(t *testing.T) {
	d := drive(t, "ses_1")
	address := "https://good.example@evil.example/" + strings.Repeat("x", 200)
	d.happens(&pb.SessionEvent{Kind: &pb.SessionEvent_QuestionAsked{QuestionAsked: &pb.QuestionAsked{Question: &pb.Question{
		QuestionId: "q1", SessionId: "ses_1", Source: "mail", Prompt: "Sign in",
		Form: &pb.Question_Link{Link: &pb.LinkForm{Url: address}},
	}}}})
	d.shows("mail asks")
	d.press("ctrl+y")
	d.shows("host: evil.example")
	if screen := strings.ReplaceAll(d.screen(), "\n", ""); strings.Count(screen, "x") < 200 {
		t.Error("the address is cut")
	}
	d.clock = d.clock.Add(time.Second)
	d.press("n")
	d.until("it is declined", func() bool { return d.server.count() == 1 })
	if got := d.server.last().(*pb.AnswerQuestionRequest).GetAction(); got != pb.QuestionAction_QUESTION_ACTION_DECLINE {
		t.Errorf("answers %v", got)
	}
}

func TestTheQueueIsChanged(t *testing.T) {
	d := drive(t, "ses_1")
	d.happens(append(waits("a", "b", "c"), runs(true))...)
	d.shows("waits: words of c")
	d.press("ctrl+g", "shift+down")
	d.until("it is moved", func() bool { return d.server.count() == 1 })
	if got := d.server.last().([]string); got[0] != "a" || got[1] != "c" {
		t.Errorf("moves %v", got)
	}
	d.press("up", "e")
	d.shows("changing a message that waits")
	d.write(" and more")
	d.press("enter")
	d.until("it is changed", func() bool { return d.server.count() == 2 })
	if got := d.server.last().(*pb.EditQueuedMessageRequest); got.GetMessageId() != "a" ||
		textOf(got.GetParts()) != "words of a and more" {
		t.Errorf("changes %v", got)
	}
	d.happens(waits()...)
	d.gone("waits:")
}

func TestADraftSurvivesTheEditingOfAnotherMessage(t *testing.T) {
	d := drive(t, "ses_1")
	d.happens(append(waits("a"), runs(true))...)
	d.shows("waits:")
	d.write("my draft")
	d.press("ctrl+g", "e")
	if d.app.input.text() != "words of a" {
		t.Errorf("the input has %q", d.app.input.text())
	}
	d.press("esc")
	if d.app.input.text() != "my draft" {
		t.Errorf("the input has %q", d.app.input.text())
	}
}

func TestSessionsAreListedFoundAndOpened(t *testing.T) {
	d := drive(t, "")
	d.server.mu.Lock()
	d.server.sessions = []*pb.SessionInfo{
		{Id: "ses_a", Title: "Apples\x1b[31m"}, {Id: "ses_b", Title: "Bananas"},
		{Id: "ses_c", Title: "Put away", ArchiveTime: timestamppb.Now()},
	}
	d.server.mu.Unlock()
	d.press("ctrl+l")
	d.server.tellAll(&pb.SessionEvent{SessionId: "ses_b", Kind: &pb.SessionEvent_TurnEnded{TurnEnded: &pb.TurnEnded{}}})
	d.shows("* Bananas")
	d.server.tellAll(&pb.SessionEvent{SessionId: "ses_a", Kind: &pb.SessionEvent_PermissionAsked{
		PermissionAsked: &pb.PermissionAsked{Permission: &pb.PermissionRequest{Id: "p"}},
	}})
	d.press("/")
	d.write("Ban")
	d.gone("Apples")
	d.press("enter", "enter")
	d.until("it is opened", func() bool { return d.app.chat.sessionID == "ses_b" })
	d.press("ctrl+l", "/")
	d.press("esc")
	d.shows("Apples[31m")
	d.gone("* Bananas")
	d.press("A")
	d.shows("Put away")
}

func TestASessionIsDeletedAfterAYes(t *testing.T) {
	d := drive(t, "")
	d.server.mu.Lock()
	d.server.sessions = []*pb.SessionInfo{{Id: "ses_a", Title: "Apples"}, {Id: "ses_b", Title: "Bananas"}}
	d.server.mu.Unlock()
	d.press("ctrl+l")
	d.shows("Bananas")
	d.press("down", "d")
	d.shows("delete \"Bananas\"")
	d.write("y")
	d.press("enter")
	d.shows("nothing was deleted")
	calls := d.server.count()
	d.press("d")
	d.write("yes")
	d.press("enter")
	d.until("it is deleted", func() bool { return d.server.count() == calls+1 && d.server.last() == "delete ses_b" })
}

func TestOfflineIsShown(t *testing.T) {
	d := drive(t, "ses_1")
	d.shows("online")
	d.server.link <- false
	d.shows("offline, connecting again")
	d.server.link <- true
	d.gone("offline")
	d.server.tell(d.server.conversation, errRefused)
	d.shows("offline, connecting again: refused by the test")
	d.happens()
	d.gone("offline")
}

func TestEverySizeIsDrawnExactly(t *testing.T) {
	d := drive(t, "ses_1")
	events := append(waits("a", "b", "c", "d", "e"), said("m1", strings.Repeat("世界 words ", 30)),
		answers("m2", "| a | b |\n|---|---|\n| 1 | 2 |"), asks("p1"), runs(true))
	d.happens(events...)
	d.until("it is there", func() bool { return d.app.chat.list.Len() == 2 })
	for _, keys := range [][]string{{}, {"tab"}, {"ctrl+g"}, {"ctrl+y"}, {"ctrl+l"}, {"f1"}, {"f1", "ctrl+f"}} {
		d.press(keys...)
		for width := 1; width < 130; width += 3 {
			for height := 1; height < 40; height += 4 {
				d.app.Update(tea.WindowSizeMsg{Width: width, Height: height})
				view := d.app.View()
				lines := strings.Split(view.Content, "\n")
				if len(lines) > height {
					t.Fatalf("%d by %d has %d lines", width, height, len(lines))
				}
				for _, line := range lines {
					if got := text.Width(line); got > max(width, 5) {
						t.Fatalf("%v: %d by %d has a line of %d: %q", keys, width, height, got, line)
					}
				}
				if c := view.Cursor; c != nil && width > 8 && (c.X < 0 || c.X > width || c.Y < 0 || c.Y >= height) {
					t.Fatalf("%d by %d has the cursor at %d, %d", width, height, c.X, c.Y)
				}
			}
		}
	}
}

func TestALongPasteIsRefusedWithoutLoss(t *testing.T) {
	d := drive(t, "")
	d.write("kept")
	d.take(tea.PasteMsg{Content: strings.Repeat("x", maxPaste+1)})
	d.shows("too long for the input")
	d.take(tea.PasteMsg{Content: "a\r\nb\x1b[31m"})
	if got := d.app.input.text(); got != "kepta\nb[31m" {
		t.Errorf("the input has %q", got)
	}
}

func TestWhatItCost(t *testing.T) {
	d := drive(t, "ses_1")
	d.press("ctrl+r")
	d.shows("tokens_per_day: 5, no limit")
	d.press("esc")
	d.gone("tokens_per_day")
}

func TestLeaving(t *testing.T) {
	d := drive(t, "")
	d.write("text")
	d.press("ctrl+d")
	d.until("nothing waits", func() bool { return len(d.messages) == 0 })
	if d.quit {
		t.Fatal("left with text in the input")
	}
	d.press("ctrl+q")
	d.until("the program ends", func() bool { return d.quit })
}

func TestTheCostOfATurnWhoseEndWasNotSeenIsThatOfItsMessages(t *testing.T) {
	d := drive(t, "ses_1")
	one := answers("m1", "first step")
	two := answers("m2", "second step")
	for _, event := range []*pb.SessionEvent{one, two} {
		message := event.GetMessageAdded().GetMessage()
		message.TurnId, message.Status = "turn_1", pb.MessageStatus_MESSAGE_STATUS_COMPLETE
		message.Usage = &pb.TokenUsage{InputTokens: proto.Uint64(10), OutputTokens: proto.Uint64(2)}
		message.CostPicoUsd = proto.Int64(5e11)
	}
	d.happens(one, two)
	d.shows("20 in, 4 out $1.0000")
}

func TestASessionThatIsNoLongerFollowedSaysSo(t *testing.T) {
	d := drive(t, "ses_1")
	d.server.ends <- errRefused
	d.shows("not followed: refused by the test")
	d.run(d.app.open("ses_1"))
	d.gone("not followed")
}

func TestLeavingWithMessagesOnTheirWayTakesASecondPress(t *testing.T) {
	d := drive(t, "ses_1")
	d.server.hold = make(chan struct{})
	defer close(d.server.hold)
	d.write("hello")
	d.press("enter", "ctrl+q")
	d.shows("1 message is not sent yet")
	if d.quit {
		t.Fatal("left at once")
	}
	d.press("ctrl+q")
	d.until("the program ends", func() bool { return d.quit })
}

func TestACallIsShownWholeBeforeItIsAllowed(t *testing.T) {
	d := drive(t, "ses_1")
	call := answers("m1", "I call.")
	message := call.GetMessageAdded().GetMessage()
	message.Parts = append(message.Parts, &pb.Part{Index: 1, Content: &pb.Part_ToolUse{ToolUse: &pb.ToolCallState{
		Id: "call_1", Name: "shell", Status: "pending",
		InputJson: `{"lines":["` + strings.Repeat(`echo harmless","`, 60) + `rm -rf \u001b[2K everything"],"script":"first\nsecond: no field"}`,
	}}})
	asked := asks("p1")
	permission := asked.GetPermissionAsked().GetPermission()
	permission.MessageId, permission.ToolCallId = "m1", "call_1"
	d.happens(call, asked)
	d.shows("shell")
	d.press("ctrl+y")
	d.clock = d.clock.Add(time.Second)
	d.press("?")
	d.shows("What would run")
	d.press("y", "G")
	d.shows("rm -rf")
	d.shows("script:")
	d.shows("  second: no field")
	if d.server.count() != 0 {
		t.Error("a key on the page was an answer")
	}
	d.press("esc", "y")
	d.until("it is allowed", func() bool { return d.server.count() == 1 })
}

func TestARequestThatComesDoesNotTakeThePlaceOfAForm(t *testing.T) {
	d := drive(t, "ses_1")
	d.happens(&pb.SessionEvent{Kind: &pb.SessionEvent_QuestionAsked{QuestionAsked: &pb.QuestionAsked{Question: &pb.Question{
		QuestionId: "q1", SessionId: "ses_1", Source: "painter", Prompt: "Which?",
		Form: &pb.Question_Schema{Schema: &pb.SchemaForm{SchemaJson: `{"properties":{"name":{"type":"string"}}}`}},
	}}}})
	d.shows("painter asks")
	d.press("ctrl+y")
	d.clock = d.clock.Add(time.Second)
	d.write("half a na")
	d.happens(asks("p1"))
	d.shows("(1 of 2)")
	d.write("me")
	d.shows("half a name")
	d.press("enter", "y")
	d.until("it is sent", func() bool { return d.server.count() == 1 })
	if got := d.server.last().(*pb.AnswerQuestionRequest).GetContentJson(); got != `{"name":"half a name"}` {
		t.Errorf("sent %s", got)
	}
	d.happens(&pb.SessionEvent{Kind: &pb.SessionEvent_QuestionAnswered{
		QuestionAnswered: &pb.QuestionAnswered{QuestionId: "q1"},
	}})
	d.shows("tool p1")
}
