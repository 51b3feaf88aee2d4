package ui

import (
	"context"
	"fmt"

	tea "charm.land/bubbletea/v2"

	pb "github.com/turnwire/turnwire/clients/go/opencode"

	"github.com/turnwire/turnwire/clients/go/cmd/turnwire/internal/text"
)

// search finds messages by their words.
type search struct {
	line    lineInput
	session string // the open session; "" for none
	here    bool   // looks in that session alone
	asked   string // what the hits are for
	hits    []*pb.SearchHit
	at      int
	state   string
}

func newSearch(sessionID string) *search {
	return &search{line: newLineInput("search: ", ""), session: sessionID}
}

func (s *search) paste(text string) { s.line.paste(text) }

func (s *search) key(a *App, key tea.KeyPressMsg) (tea.Cmd, bool) {
	switch key.String() {
	case "esc", "ctrl+c", "ctrl+f", "f3":
		return nil, false
	case "tab":
		s.here = !s.here && s.session != ""
		return s.find(a), true
	case "up":
		s.at = max(s.at-1, 0)
	case "down":
		s.at = min(s.at+1, max(len(s.hits)-1, 0))
	case "enter":
		if s.line.value() != s.asked {
			return s.find(a), true
		}
		if s.at < len(s.hits) {
			return a.show(s.hits[s.at]), false
		}
	default:
		s.line.key(key)
	}
	return nil, true
}

// find asks the server.
func (s *search) find(a *App) tea.Cmd {
	query, session := s.line.value(), ""
	if query == "" {
		return nil
	}
	if s.here {
		session = s.session
	}
	s.asked, s.state, s.hits, s.at = query, "searching…", nil, 0
	var hits []*pb.SearchHit
	return a.do(
		func(ctx context.Context) (err error) {
			hits, err = a.server.Search(ctx, query, session)
			return err
		},
		func() tea.Cmd {
			if s.asked == query {
				s.hits, s.state = hits, plural(len(hits), "message", "messages")
			}
			return nil
		},
		func(err error) { s.state = text.Line(describe(err)) })
}

// show opens the session of a hit and goes to its message.
func (a *App) show(hit *pb.SearchHit) tea.Cmd {
	cmd := a.open(hit.GetSessionId())
	a.region = onMessages
	a.overlay = nil
	if !a.chat.list.Choose(hit.GetMessageId()) {
		a.chat.waitFor = hit.GetMessageId()
	}
	return cmd
}

func (s *search) view(width, height int) []string {
	where := "in all sessions"
	if s.here {
		where = "in this session"
	}
	lines := []string{
		keepEnd(text.Bold.And(text.Cyan).On("Search "+where), text.Faint.On("esc closes"), width),
		text.Fit(s.line.view(width), width),
	}
	hint := "enter searches, then opens"
	if s.session != "" {
		hint += " · tab " + map[bool]string{true: "all sessions", false: "this session"}[s.here]
	}
	if s.state != "" {
		hint = s.state + " · " + hint
	}
	lines = append(lines, text.Cut(text.Faint.On(hint), width))
	rows := max((height-len(lines))/2, 1)
	first := max(s.at-rows+1, 0)
	for at := first; at < min(len(s.hits), first+rows); at++ {
		lines = append(lines, s.hit(s.hits[at], width, at == s.at)...)
	}
	return lines[:min(len(lines), height)]
}

// hit returns the two lines of a message that was found.
func (s *search) hit(hit *pb.SearchHit, width int, chosen bool) []string {
	title := text.Line(hit.GetSessionTitle())
	if title == "" {
		title = "Untitled"
	}
	head := text.Fit(fmt.Sprintf("%s · %s", title, hit.GetCreateTime().AsTime().Local().Format("2006-01-02 15:04")), width)
	if chosen {
		head = text.Reverse.On(head)
	} else {
		head = text.Bold.On(head)
	}
	var spans []text.Span
	for _, piece := range hit.GetSnippet() {
		style := text.None
		if piece.GetIsMatch() {
			style = text.Yellow.And(text.Bold)
		}
		spans = append(spans, text.Span{Text: text.Spaced(piece.GetText()), Style: style})
	}
	return []string{head, text.Cut("  "+text.Joined(spans), width)}
}
