package ui

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"

	pb "github.com/turnwire/turnwire/clients/go/opencode"

	"github.com/turnwire/turnwire/clients/go/cmd/turnwire/internal/text"
)

// listPause is the least time between two reads of the list, however much happens on the server.
const listPause = time.Second

// sessionsMsg is a list that was read.
type sessionsMsg struct {
	sessions []*pb.SessionInfo
	filter   string
	archived bool
	err      error
}

// sessionsRungMsg says that something happened in some session.
type sessionsRungMsg struct{}

// lineUse is what the input of the pane is for.
type lineUse int

const (
	toFilter lineUse = iota
	toRename
	toDelete
)

// sessionsPane lists sessions: those that changed last, with what goes on in them.
type sessionsPane struct {
	ctx    context.Context
	server Server
	bell   bell

	mu     *sync.Mutex // protects told; held for a moment
	told   *sessionsTold
	items  []*pb.SessionInfo
	at     int
	filter string
	away   bool // shows the archive
	line   lineInput
	use    lineUse
	doomed string // the session that is asked about; the list may change meanwhile
	reads  bool   // a list is being read

	running map[string]bool // as events told; the list may be older
	unread  map[string]bool
	asks    map[string]map[string]bool // open requests by session, as events told
	offset  int
	ended   error // why sessions are no longer followed, until it was told
}

// sessionsTold is what the stream told since the last look.
type sessionsTold struct {
	events []*pb.SessionEvent
	ended  error
}

func newSessionsPane(ctx context.Context, server Server) sessionsPane {
	return sessionsPane{
		ctx: ctx, server: server, bell: make(bell, 1), mu: &sync.Mutex{}, told: &sessionsTold{},
		running: map[string]bool{}, unread: map[string]bool{}, asks: map[string]map[string]bool{},
	}
}

// start follows all sessions and reads the list.
func (p *sessionsPane) start() tea.Cmd {
	told, mu, bell := p.told, p.mu, p.bell
	ctx, server := p.ctx, p.server
	go func() {
		err := server.FollowAll(ctx, func(event *pb.SessionEvent) {
			if !matters(event) {
				return
			}
			mu.Lock()
			told.events = append(told.events, event)
			mu.Unlock()
			bell.ring()
		})
		mu.Lock()
		told.ended = err
		mu.Unlock()
		bell.ring()
	}()
	return tea.Batch(p.fetch(), p.bell.wait(p.ctx, 0, sessionsRungMsg{}))
}

// matters says whether an event changes what the list shows.
func matters(event *pb.SessionEvent) bool {
	switch event.GetKind().(type) {
	case *pb.SessionEvent_SessionCreated, *pb.SessionEvent_SessionUpdated, *pb.SessionEvent_SessionDeleted,
		*pb.SessionEvent_SessionStatusChanged, *pb.SessionEvent_TurnEnded, *pb.SessionEvent_MessageAdded,
		*pb.SessionEvent_PermissionAsked, *pb.SessionEvent_PermissionReplied, *pb.SessionEvent_PermissionSnapshot,
		*pb.SessionEvent_QuestionAsked, *pb.SessionEvent_QuestionAnswered, *pb.SessionEvent_QuestionSnapshot,
		*pb.SessionEvent_Resync:
		return true
	default:
		return false
	}
}

// fetch reads the list.
func (p *sessionsPane) fetch() tea.Cmd {
	p.reads = true
	filter, away := p.filter, p.away
	return func() tea.Msg {
		sessions, err := p.server.Sessions(p.ctx, away, filter)
		return sessionsMsg{sessions, filter, away, err}
	}
}

// update takes in a list or what happened; open is the session that is shown, which is never unread.
func (p *sessionsPane) update(message tea.Msg, open string, pause time.Duration) tea.Cmd {
	switch message := message.(type) {
	case sessionsMsg:
		p.reads = false
		if message.filter != p.filter || message.archived != p.away {
			return p.fetch() // of another view
		}
		if message.err == nil {
			p.set(message.sessions)
		} else if !errors.Is(message.err, context.Canceled) {
			return tea.Tick(listPause, func(time.Time) tea.Msg { return sessionsRungMsg{} })
		}
	case sessionsRungMsg:
		p.mu.Lock()
		events, ended := p.told.events, p.told.ended
		p.told.events = nil
		p.mu.Unlock()
		for _, event := range events {
			p.apply(event, open)
		}
		if ended != nil {
			p.ended = ended
			return nil
		}
		next := p.bell.wait(p.ctx, max(listPause, pause), sessionsRungMsg{})
		if p.reads {
			return next
		}
		return tea.Batch(p.fetch(), next)
	}
	return nil
}

// set replaces the list; the chosen session stays chosen.
func (p *sessionsPane) set(sessions []*pb.SessionInfo) {
	chosen := p.chosenID()
	p.items = sessions
	if at := slices.IndexFunc(sessions, func(s *pb.SessionInfo) bool { return s.GetId() == chosen }); at >= 0 {
		p.at = at
	}
	p.at = min(p.at, max(len(sessions)-1, 0))
	for _, session := range sessions {
		p.running[session.GetId()] = session.GetStatus() == pb.SessionStatus_SESSION_STATUS_RUNNING
		if session.GetOpenRequests() == 0 {
			delete(p.asks, session.GetId())
		}
	}
}

// apply takes in one event.
func (p *sessionsPane) apply(event *pb.SessionEvent, open string) {
	id := event.GetSessionId()
	ask := func(request string, isOpen bool) {
		if p.asks[id] == nil {
			p.asks[id] = map[string]bool{}
		}
		if p.asks[id][request] = true; !isOpen {
			delete(p.asks[id], request)
		}
	}
	switch kind := event.GetKind().(type) {
	case *pb.SessionEvent_SessionStatusChanged:
		p.running[id] = kind.SessionStatusChanged.GetStatus() == pb.SessionStatus_SESSION_STATUS_RUNNING
	case *pb.SessionEvent_TurnEnded:
		if id != open {
			p.unread[id] = true
		}
	case *pb.SessionEvent_SessionDeleted:
		delete(p.unread, id)
		delete(p.running, id)
		delete(p.asks, id)
	case *pb.SessionEvent_PermissionAsked:
		ask(kind.PermissionAsked.GetPermission().GetId(), true)
	case *pb.SessionEvent_PermissionSnapshot:
		ask(kind.PermissionSnapshot.GetPermission().GetId(), true)
	case *pb.SessionEvent_PermissionReplied:
		ask(kind.PermissionReplied.GetPermissionId(), false)
	case *pb.SessionEvent_QuestionAsked:
		ask(kind.QuestionAsked.GetQuestion().GetQuestionId(), true)
	case *pb.SessionEvent_QuestionSnapshot:
		ask(kind.QuestionSnapshot.GetQuestion().GetQuestionId(), true)
	case *pb.SessionEvent_QuestionAnswered:
		ask(kind.QuestionAnswered.GetQuestionId(), false)
	default: // the list is read again
	}
}

// read marks a session as read.
func (p *sessionsPane) read(id string) { delete(p.unread, id) }

// choose goes to a session, if the list has it.
func (p *sessionsPane) choose(id string) {
	if at := slices.IndexFunc(p.items, func(s *pb.SessionInfo) bool { return s.GetId() == id }); at >= 0 {
		p.at = at
	}
}

func (p *sessionsPane) chosen() *pb.SessionInfo {
	if p.at < len(p.items) {
		return p.items[p.at]
	}
	return nil
}

func (p *sessionsPane) chosenID() string { return p.chosen().GetId() }

// key takes a key while the pane has the focus.
func (p *sessionsPane) key(a *App, key tea.KeyPressMsg) tea.Cmd {
	if p.line.active() {
		return p.lineKey(a, key)
	}
	switch key.String() {
	case "up", "k":
		p.at = max(p.at-1, 0)
	case "down", "j":
		p.at = min(p.at+1, max(len(p.items)-1, 0))
	case "pgup":
		p.at = max(p.at-10, 0)
	case "pgdown":
		p.at = min(p.at+10, max(len(p.items)-1, 0))
	case "home", "g":
		p.at = 0
	case "end", "G":
		p.at = max(len(p.items)-1, 0)
	case "enter":
		if id := p.chosenID(); id != "" {
			return a.open(id)
		}
	case "n":
		return a.open("")
	case "/":
		p.line, p.use = newLineInput("/", p.filter), toFilter
	case "r":
		if session := p.chosen(); session != nil {
			p.line, p.use = newLineInput("title: ", text.Line(session.GetTitle())), toRename
		}
	case "a":
		if id := p.chosenID(); id != "" {
			away := !p.away
			return a.do(
				func(ctx context.Context) error { return a.server.Archive(ctx, id, away) },
				func() tea.Cmd { return tea.Batch(p.fetch(), a.note(archiveNote(away), text.Green)) }, nil)
		}
	case "d":
		if session := p.chosen(); session != nil {
			p.doomed = session.GetId()
			p.line, p.use = newLineInput("yes: ", ""), toDelete
			return a.note(fmt.Sprintf("delete %q for ever, with all its messages?", text.Line(session.GetTitle())), text.Red)
		}
	case "A":
		p.away, p.at = !p.away, 0
		return p.fetch()
	}
	return nil
}

func archiveNote(away bool) string {
	if away {
		return "archived; A in the list shows the archive"
	}
	return "taken out of the archive"
}

// lineKey takes a key for the input of the pane.
func (p *sessionsPane) lineKey(a *App, key tea.KeyPressMsg) tea.Cmd {
	switch key.String() {
	case "esc":
		p.line.on = false
		if p.use == toFilter && p.filter != "" {
			p.filter = ""
			return p.fetch()
		}
		return nil
	case "enter":
		p.line.on = false
		if p.use == toFilter {
			return nil
		}
		if p.use == toDelete {
			return p.delete(a)
		}
		id, title := p.chosenID(), p.line.value()
		return a.do(
			func(ctx context.Context) error { return a.server.Rename(ctx, id, title) }, p.fetch, nil)
	}
	p.line.key(key)
	if p.use == toFilter && p.line.value() != p.filter {
		p.filter, p.at = p.line.value(), 0
		if p.reads {
			return nil // the answer asks again
		}
		return p.fetch()
	}
	return nil
}

// delete removes the session that was asked about, if "yes" was typed.
func (p *sessionsPane) delete(a *App) tea.Cmd {
	if id := p.doomed; p.line.value() == "yes" {
		return a.do(
			func(ctx context.Context) error { return a.server.Delete(ctx, id) },
			func() tea.Cmd { return tea.Batch(p.fetch(), a.note("deleted", text.Green)) }, nil)
	}
	return a.note("nothing was deleted", text.Faint)
}

// view returns the lines of the pane.
func (p *sessionsPane) view(width, height int, open string, focused bool) []string {
	title := "Sessions"
	if p.away {
		title = "Archive"
	}
	if p.filter != "" && !p.line.active() {
		title += " /" + text.Line(p.filter)
	}
	style := text.Faint
	if focused {
		style = text.Bold.And(text.Cyan)
	}
	lines := []string{text.Fit(style.On(title), width)}
	if p.line.active() {
		lines = append(lines, text.Fit(p.line.view(width), width))
	}
	rows := max(height-len(lines), 1)
	if p.at < p.offset {
		p.offset = p.at
	} else if p.at >= p.offset+rows {
		p.offset = p.at - rows + 1
	}
	p.offset = max(min(p.offset, len(p.items)-rows), 0)
	for at := p.offset; at < min(len(p.items), p.offset+rows); at++ {
		lines = append(lines, p.row(p.items[at], width, open, focused && at == p.at))
	}
	if len(p.items) == 0 {
		lines = append(lines, text.Fit(text.Faint.On("none"), width))
	}
	return lines
}

// row returns the line of a session: what goes on in it, title, time.
func (p *sessionsPane) row(session *pb.SessionInfo, width int, open string, chosen bool) string {
	id := session.GetId()
	sign, style := " ", text.None
	switch {
	case len(p.asks[id]) > 0 || p.running[id] && session.GetOpenRequests() > 0:
		sign, style = "?", text.Yellow.And(text.Bold)
	case p.running[id]:
		sign, style = "●", text.Cyan
	case p.unread[id]:
		sign, style = "*", text.Green.And(text.Bold)
	}
	title := text.Line(session.GetTitle())
	if title == "" {
		title = "Untitled " + id[max(len(id)-6, 0):]
	}
	if waiting := session.GetQueuedMessages(); waiting > 0 {
		title = fmt.Sprintf("%s (+%d)", title, waiting)
	}
	when := age(time.UnixMilli(session.GetTime().GetUpdated()))
	room := width - 2 - len(when) - 1
	named := text.Fit(title, max(room, 4))
	switch {
	case chosen:
		named = text.Reverse.On(named)
	case id == open:
		named = text.Bold.And(text.Cyan).On(named)
	case p.unread[id]:
		named = text.Bold.On(named)
	}
	line := style.On(sign) + " " + named
	if room >= 8 {
		line += " " + text.Faint.On(when)
	}
	return text.Fit(line, width)
}

// age tells how long ago something was.
func age(then time.Time) string {
	switch ago := time.Since(then); {
	case ago < time.Minute:
		return "now"
	case ago < time.Hour:
		return fmt.Sprintf("%dm", int(ago.Minutes()))
	case ago < 24*time.Hour:
		return fmt.Sprintf("%dh", int(ago.Hours()))
	default:
		return fmt.Sprintf("%dd", int(ago.Hours()/24))
	}
}
