package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	turnwire "github.com/turnwire/turnwire/clients/go"
	pb "github.com/turnwire/turnwire/clients/go/opencode"

	"github.com/turnwire/turnwire/clients/go/cmd/turnwire/internal/text"
	"github.com/turnwire/turnwire/clients/go/cmd/turnwire/internal/transcript"
)

// guard is how long a request has been on the screen before a key answers it, so that nobody answers one that has just taken
// the place of another.
const guard = 400 * time.Millisecond

// asking is what people are asked: permission requests and questions, the oldest first. It never takes the focus by itself,
// because what is being typed would then be an answer.
type asking struct {
	permissions []*pb.PermissionRequest
	questions   []*pb.Question
	calls       map[string]*pb.ToolCallState // by id, of the permission requests

	shown   string // what is on the screen
	shownAt time.Time
	reason  lineInput
	form    *form
}

// take looks at what is open in a conversation.
func (s *asking) take(conversation *turnwire.Conversation, now time.Time) {
	if conversation == nil {
		return
	}
	s.permissions, s.questions = conversation.Permissions(), conversation.Questions()
	s.calls = map[string]*pb.ToolCallState{}
	for _, permission := range s.permissions {
		for _, part := range conversation.Message(permission.GetMessageId()).GetParts() {
			if part.GetToolUse().GetId() == permission.GetToolCallId() && permission.GetToolCallId() != "" {
				s.calls[permission.GetId()] = part.GetToolUse()
			}
		}
	}
	if s.currentID() != s.shown {
		s.show(now)
	}
}

// open says whether something is asked.
func (s *asking) open() bool { return len(s.permissions)+len(s.questions) > 0 }

// current returns what is asked now: one of the two, or none. What is on the screen stays there until it is closed, so that
// nothing takes the place of a form that is half filled in.
func (s *asking) current() (*pb.PermissionRequest, *pb.Question) {
	for _, permission := range s.permissions {
		if permission.GetId() == s.shown {
			return permission, nil
		}
	}
	for _, question := range s.questions {
		if question.GetQuestionId() == s.shown {
			return nil, question
		}
	}
	switch {
	case len(s.permissions) > 0:
		return s.permissions[0], nil
	case len(s.questions) > 0:
		return nil, s.questions[0]
	default:
		return nil, nil
	}
}

// currentID returns the id of what is asked now; "" when nothing is.
func (s *asking) currentID() string {
	permission, question := s.current()
	return permission.GetId() + question.GetQuestionId()
}

// show puts what is asked next on the screen.
func (s *asking) show(now time.Time) {
	id := s.currentID()
	if id == s.shown && s.form != nil {
		return // half filled in
	}
	_, question := s.current()
	s.shown, s.shownAt, s.reason.on, s.form = id, now, false, nil
	if schema := question.GetSchema(); schema != nil {
		s.form = newForm(schema.GetSchemaJson())
	}
}

// writing says whether keys are text.
func (s *asking) writing() bool {
	return s.reason.active() || s.form != nil && s.form.writing()
}

func (s *asking) paste(text string) {
	switch {
	case s.reason.active():
		s.reason.paste(text)
	case s.form != nil && s.form.writing():
		s.form.line.paste(text)
	}
}

// key takes a key while the panel has the focus.
func (s *asking) key(a *App, key tea.KeyPressMsg) tea.Cmd {
	if !s.open() {
		a.region = onInput
		return nil
	}
	if s.writing() && key.String() == "esc" {
		if s.reason.active() {
			s.reason.on = false
		} else {
			a.region = onInput
		}
		return nil
	}
	if !s.writing() && a.now().Sub(s.shownAt) < guard {
		return nil
	}
	permission, question := s.current()
	if permission != nil {
		return s.permissionKey(a, key, permission)
	}
	return s.questionKey(a, key, question)
}

func (s *asking) permissionKey(a *App, key tea.KeyPressMsg, request *pb.PermissionRequest) tea.Cmd {
	answer := func(word, reason string) tea.Cmd {
		s.shownAt = a.now() // a second press is no second answer
		return a.do(func(ctx context.Context) error {
			return a.server.Permit(ctx, &pb.PermissionResponse{
				SessionId: request.GetSessionId(), PermissionId: request.GetId(), Response: word, Reason: reason,
			})
		}, nil, nil)
	}
	if s.reason.active() {
		if key.String() == "enter" {
			s.reason.on = false
			return answer("reject", s.reason.value())
		}
		s.reason.key(key)
		return nil
	}
	switch key.String() {
	case "y":
		return answer("once", "")
	case "A": // as in the console; one that a slip presses less easily
		return answer("always", "")
	case "n":
		return answer("reject", "")
	case "r":
		s.reason = newLineInput("why not: ", "")
	case "?", "space":
		a.overlay = s.whole(request)
	}
	return nil
}

func (s *asking) questionKey(a *App, key tea.KeyPressMsg, question *pb.Question) tea.Cmd {
	answer := func(action pb.QuestionAction, content string) tea.Cmd {
		s.shownAt = a.now()
		filled := s.form
		return a.do(func(ctx context.Context) error {
			return a.server.Answer(ctx, &pb.AnswerQuestionRequest{
				SessionId: question.GetSessionId(), QuestionId: question.GetQuestionId(), Action: action, ContentJson: content,
			})
		}, nil, func(err error) {
			if filled != nil {
				filled.refused(describe(err))
			}
		})
	}
	if s.form != nil && s.form.writing() {
		s.form.key(key)
		return nil
	}
	switch key.String() {
	case "y":
		if s.form != nil {
			return answer(pb.QuestionAction_QUESTION_ACTION_ACCEPT, s.form.content())
		}
		if question.GetLink() != nil {
			return answer(pb.QuestionAction_QUESTION_ACTION_ACCEPT, "")
		}
	case "n":
		return answer(pb.QuestionAction_QUESTION_ACTION_DECLINE, "")
	case "c":
		return answer(pb.QuestionAction_QUESTION_ACTION_CANCEL, "")
	case "b":
		if s.form != nil {
			s.form.restart()
		}
	}
	return nil
}

// view returns the panel: one line unless it has the focus.
func (s *asking) view(width, height int, focused bool) []string {
	if !s.open() || height <= 0 {
		return nil
	}
	count := ""
	if total := len(s.permissions) + len(s.questions); total > 1 {
		count = fmt.Sprintf(" (1 of %d)", total)
	}
	var lines []string
	if permission, question := s.current(); permission != nil {
		lines = s.permissionLines(permission, width-2, count, focused)
	} else {
		lines = s.questionLines(question, width-2, count, focused)
	}
	if hidden := len(lines) - height; hidden > 0 { // the end says which keys answer
		keep := max(height-1, 1)
		lines = slices.Concat(lines[:height-keep], lines[len(lines)-keep:])
	}
	for i, line := range lines {
		lines[i] = text.Fit(text.Yellow.On("▌ ")+line, width)
	}
	return lines
}

func (s *asking) permissionLines(request *pb.PermissionRequest, width int, count string, focused bool) []string {
	call := s.calls[request.GetId()]
	name := text.Line(call.GetName())
	if name == "" {
		name = text.Line(request.GetType())
	}
	arguments := text.Line(cutText(call.GetInputJson(), 2000))
	head := text.Joined([]text.Span{
		{Text: "May this run" + count + "? ", Style: text.Yellow.And(text.Bold)},
		{Text: name + " ", Style: text.Bold}, {Text: arguments, Style: text.None},
	})
	if !focused {
		return []string{keepEnd(head, text.Yellow.On("ctrl+y answers"), width)}
	}
	lines := []string{text.Cut(head, width)}
	if s.reason.active() {
		return append(lines, s.reason.view(width))
	}
	patterns := text.Line(strings.Join(request.GetPattern(), ", "))
	keys := "y once · A always"
	if patterns != "" {
		keys += " (" + patterns + ")"
	}
	keys += " · n no · r no, because … · ? all of it · esc later"
	return append(lines, text.Wrap(keys, width, text.Yellow)...)
}

// whole returns a page with all of a call, for a person who wants to know what they allow.
func (s *asking) whole(request *pb.PermissionRequest) *pager {
	call := s.calls[request.GetId()]
	p := &pager{title: "What would run"}
	p.fact("Tool", call.GetName())
	p.fact("Kind", request.GetType())
	p.fact("Says", request.GetTitle())
	p.fact("Always would allow", strings.Join(request.GetPattern(), ", "))
	p.add("", text.None)
	p.add(transcript.Arguments(call.GetInputJson()), text.Cyan)
	return p
}

func (s *asking) questionLines(question *pb.Question, width int, count string, focused bool) []string {
	head := text.Joined([]text.Span{
		{Text: text.Line(question.GetSource()) + " asks" + count + ": ", Style: text.Yellow.And(text.Bold)},
		{Text: text.Line(question.GetPrompt()), Style: text.None},
	})
	if !focused {
		return []string{keepEnd(head, text.Yellow.On("ctrl+y answers"), width)}
	}
	lines := text.WrapSpans([]text.Span{
		{Text: text.Line(question.GetSource()) + " asks" + count + ": ", Style: text.Yellow.And(text.Bold)},
		{Text: text.Clean(question.GetPrompt()), Style: text.None},
	}, width)
	switch {
	case s.form != nil:
		lines = append(lines, s.form.view(width)...)
		if s.form.writing() {
			return lines
		}
		return append(lines, text.Wrap("y send · b begin again · n decline · c cancel · esc later", width, text.Yellow)...)
	case question.GetLink() != nil:
		address := question.GetLink().GetUrl()
		host := "?"
		if parsed, err := url.Parse(address); err == nil {
			host = parsed.Host
		}
		lines = append(lines, text.Wrap(text.Line(address), width, text.Underline)...)
		lines = append(lines, text.Cut(text.Bold.On("host: "+text.Line(host)), width))
		return append(lines, text.Wrap("open it yourself if you agree · y agree · n decline · c cancel · esc later", width, text.Yellow)...)
	default:
		return append(lines, text.Wrap("this program cannot show the question · n decline · c cancel · esc later", width, text.Yellow)...)
	}
}

// keepEnd returns a line whose end is always seen.
func keepEnd(line, end string, width int) string {
	room := width - text.Width(end) - 1
	if room < 8 {
		return text.Cut(end, width)
	}
	return text.Fit(line, room) + " " + end
}

// indentJSON writes JSON with a line for each field; what is no JSON stays as it is.
func indentJSON(source string) string {
	var value json.RawMessage
	if json.Unmarshal([]byte(source), &value) != nil {
		return source
	}
	formatted, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return source
	}
	return string(formatted)
}

// cutText returns the beginning of a text, cut between characters.
func cutText(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && s[limit]&0xc0 == 0x80 {
		limit--
	}
	return s[:limit] + "…"
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
