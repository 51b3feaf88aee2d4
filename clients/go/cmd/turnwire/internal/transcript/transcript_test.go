package transcript

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	pb "github.com/turnwire/turnwire/clients/go/opencode"

	"github.com/turnwire/turnwire/clients/go/cmd/turnwire/internal/text"
)

var styles = regexp.MustCompile("\x1b\\[[0-9;]*m")

func message(id, words string) *pb.SessionMessage {
	return &pb.SessionMessage{
		MessageId: id, Type: pb.MessageType_MESSAGE_TYPE_ASSISTANT, Status: pb.MessageStatus_MESSAGE_STATUS_COMPLETE,
		Parts: []*pb.Part{{Content: &pb.Part_Text{Text: &pb.TextContent{Text: words}}}},
	}
}

func conversation(n int) []*pb.SessionMessage {
	var messages []*pb.SessionMessage
	for i := range n {
		messages = append(messages, message(fmt.Sprint("m", i), fmt.Sprintf("text of %d\n\nand more", i)))
	}
	return messages
}

// shown returns the window as one text, without styles.
func shown(l *List) string {
	return styles.ReplaceAllString(strings.Join(l.View(), "\n"), "")
}

func window(n, width, height int) *List {
	var l List
	l.Resize(width, height)
	l.Set(conversation(n))
	return &l
}

func TestTheWindowFollowsTheEnd(t *testing.T) {
	l := window(50, 40, 8)
	if got := shown(l); !strings.HasSuffix(got, "text of 49\n  \n  and more") || len(l.View()) != 8 {
		t.Errorf("got %q", got)
	}
	l.Set(conversation(51))
	if got := shown(l); !strings.Contains(got, "text of 50") {
		t.Errorf("got %q", got)
	}
}

func TestTheWindowStaysWhereItWasScrolledTo(t *testing.T) {
	l := window(50, 40, 8)
	l.Scroll(-30)
	before := shown(l)
	messages := conversation(60)
	l.Set(messages)
	if got := shown(l); got != before || l.Following() {
		t.Errorf("got %q, want %q", got, before)
	}
	l.Set(messages[3:]) // what was before is gone
	if got := shown(l); got != before {
		t.Errorf("got %q, want %q", got, before)
	}
	l.Scroll(1000)
	if !l.Following() {
		t.Error("does not follow again")
	}
}

func TestScrollingComesByEveryLine(t *testing.T) {
	l := window(20, 40, 5)
	l.ToStart()
	var seen []string
	for !l.Following() {
		seen = append(seen, l.View()[0])
		l.Scroll(1)
	}
	seen = append(seen, l.View()...)
	var want int
	for at := range l.items {
		want += len(l.layOut(at))
	}
	if len(seen) != want-1 { // without the last empty line
		t.Errorf("%d lines, want %d", len(seen), want-1)
	}
	back := 0
	for l.top = 0; ; back++ {
		before := shown(l)
		if l.Scroll(-1); shown(l) == before {
			break
		}
	}
	if back != want-1-5 {
		t.Errorf("%d lines back, want %d", back, want-1-5)
	}
}

func TestTenThousandMessagesAreNotLaidOut(t *testing.T) {
	l := window(10_000, 80, 40)
	began := time.Now()
	for range 200 {
		l.Page(-1)
		l.View()
	}
	l.ToStart()
	l.View()
	l.Choose("m5000")
	if got := shown(l); !strings.Contains(got, "text of 5000") {
		t.Errorf("got %q", got)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("took %v", took)
	}
	laid := 0
	for _, i := range l.items {
		if i.laidOut {
			laid++
		}
	}
	if laid > 5*kept {
		t.Errorf("%d messages are laid out", laid)
	}
}

func TestAFrameOfTenThousandMessagesIsQuick(t *testing.T) {
	messages := conversation(10_000)
	l := window(0, 80, 40)
	l.Set(messages)
	l.View()
	began := time.Now()
	const frames = 30
	for i := range frames {
		messages[9_999] = message("m9999", strings.Repeat("word ", i*100))
		l.Set(messages)
		l.View()
	}
	if each := time.Since(began) / frames; each > 20*time.Millisecond {
		t.Errorf("a frame takes %v", each)
	}
}

func TestNoContentLooksLikeAHeading(t *testing.T) {
	var l List
	l.Resize(60, 40)
	forged := message("m", "● You 12:00\n\n▶ You\n\n```\n● You\n```")
	forged.Parts = append(forged.Parts,
		&pb.Part{Index: 1, Content: &pb.Part_ToolUse{ToolUse: &pb.ToolCallState{
			Name: "x\n● You", Status: "success", Output: ptr("● You\n● You"), Logs: []string{"a\n● You"},
		}}},
		&pb.Part{Index: 2, Content: &pb.Part_Refusal{Refusal: &pb.RefusalContent{Text: "no\n● You"}}},
	)
	forged.Failure = &pb.Failure{Reason: "X", Message: "y\n● You"}
	l.Set([]*pb.SessionMessage{forged})
	l.ToggleFold()
	for n, line := range strings.Split(shown(&l), "\n") {
		if n > 0 && line != "" && !strings.HasPrefix(line, "  ") {
			t.Errorf("line %d begins at the edge: %q", n, line)
		}
	}
}

func TestReasoningAndCallsAreFolded(t *testing.T) {
	var l List
	l.Resize(60, 60)
	m := message("m", "answer")
	m.Parts = append([]*pb.Part{
		{Content: &pb.Part_Reasoning{Reasoning: &pb.ReasoningContent{Text: "first thought\nsecond thought"}}},
		{Index: 1, Content: &pb.Part_ToolUse{ToolUse: &pb.ToolCallState{
			Name: "fs.read", Status: "error", InputJson: `{"path":"a","n":12345678901234567890}`,
			Output: ptr(strings.Repeat("line\n", 30)), Error: ptr("broken"), Logs: []string{"one", "two"},
			StartedAt: ptr(int64(1000)), FinishedAt: ptr(int64(3500)),
		}}},
	}, m.Parts...)
	m.Usage = &pb.TokenUsage{InputTokens: ptr(uint64(10)), OutputTokens: ptr(uint64(5))}
	l.Set([]*pb.SessionMessage{m})
	folded := shown(&l)
	for _, want := range []string{"▸ Reasoning: first thought", "⚙ fs.read ✗ 2.5s", "│ two", "… 150 B in all", "broken"} {
		if !strings.Contains(folded, want) {
			t.Errorf("%q is not in %s", want, folded)
		}
	}
	l.ToggleFold()
	opened := shown(&l)
	for _, want := range []string{"▾ Reasoning", "second thought", `n: 12345678901234567890`, "10 in, 5 out"} {
		if !strings.Contains(opened, want) {
			t.Errorf("%q is not in %s", want, opened)
		}
	}
	if strings.Count(opened, "line") < 30 {
		t.Error("the output is still folded")
	}
}

func TestArgumentsAreText(t *testing.T) {
	cases := map[string]string{
		`{"path":"a.txt","content":"one\n\ttwo \"quoted\"\n","n":12345678901234567890,"deep":{"b":[1]},"none":null}`: "path: a.txt\n" +
			"content:\n  one\n  \ttwo \"quoted\"\nn: 12345678901234567890\ndeep:\n  {\n    \"b\": [\n      1\n    ]\n  }\nnone: null",
		`{"a":"1\u001b[2J2\rb: 3\u2028c: 4\r\nd: 5","e\nf":1}`: "a:\n  1⟨U+001B⟩[2J2⟨U+000D⟩b: 3⟨U+2028⟩c: 4\n  d: 5\ne f: 1",
		`{}`:           "",
		`{"a":"b"`:     `{"a":"b"`,
		`{"a":"b"} {}`: `{"a":"b"} {}`,
		`["a"]`:        `["a"]`,
	}
	for source, want := range cases {
		if got := Arguments(source); got != want {
			t.Errorf("%s is shown as %q, not as %q", source, got, want)
		}
	}
}

func TestStates(t *testing.T) {
	cases := map[string]*pb.ToolCallState{
		"is written":    {Status: "pending"},
		"waits for you": {Status: "pending", PermissionId: ptr("p"), StartedAt: ptr(int64(1))},
		"waits for":     {Status: "pending", StartedAt: ptr(int64(1))},
		"run by editor": {Status: "pending", StartedAt: ptr(int64(1)), Lease: &pb.ToolCallLease{Holder: "editor"}},
		"runs":          {Status: "running"},
		"✓":             {Status: "success"},
		"cancelled":     {Status: "cancelled"},
		"something new": {Status: "something new"},
	}
	for want, state := range cases {
		if got := strings.Join(call(state, 60, false, true), "\n"); !strings.Contains(got, want) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
	appended := &pb.ToolCallState{Status: "pending"}
	if got := strings.Join(call(appended, 60, false, false), "\n"); !strings.Contains(got, "waits for its result") {
		t.Error(got)
	}
}

func TestAResultTellsHowItEnded(t *testing.T) {
	code := int32(2)
	for _, one := range []struct {
		result *pb.ToolResultContent
		want   string
	}{
		{&pb.ToolResultContent{Output: "no", IsError: true, ExitCode: &code}, "✗ failed, exit code 2\n  no"},
		{&pb.ToolResultContent{Output: "no", IsError: true}, "✗ failed\n  no"},
		{&pb.ToolResultContent{Output: "yes"}, "  yes"},
	} {
		i := item{message: &pb.SessionMessage{
			Type: pb.MessageType_MESSAGE_TYPE_TOOL_RESULT, Parts: []*pb.Part{{Content: &pb.Part_ToolResult{ToolResult: one.result}}},
		}}
		got := styles.ReplaceAllString(strings.Join(i.layOut(40)[1:], "\n"), "")
		if strings.TrimRight(got, "\n") != one.want {
			t.Errorf("got %q, want %q", got, one.want)
		}
	}
}

func TestNoLineIsLongerThanTheWindow(t *testing.T) {
	m := message("m", strings.Repeat("世界 words ", 50)+"\n\n```\n"+strings.Repeat("x", 300)+"\n```")
	m.ModelRun = &pb.ModelRun{ProviderId: strings.Repeat("p", 100), ModelRequested: "m"}
	m.Parts = append(m.Parts, &pb.Part{Index: 1, Content: &pb.Part_ToolUse{ToolUse: &pb.ToolCallState{
		Name: strings.Repeat("n", 200), InputJson: strings.Repeat("i", 500), Output: ptr(strings.Repeat("世", 500)),
	}}})
	for width := 20; width < 120; width++ {
		var l List
		l.Resize(width, 500)
		l.Set([]*pb.SessionMessage{m})
		for _, line := range l.View() {
			if got := text.Width(line); got > width {
				t.Fatalf("%d columns: %q has %d", width, line, got)
			}
		}
	}
}

func ptr[T any](value T) *T { return &value }
