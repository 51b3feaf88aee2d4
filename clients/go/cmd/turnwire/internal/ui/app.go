// Package ui is the screen of the program: what is shown, and what keys do.
//
// App is the model of Bubble Tea. It changes in Update alone, in one goroutine; what takes time runs in commands, whose
// results come back as messages. Streams ring a bell when something has changed, and the screen looks at most 30 times a
// second, less when drawing takes long. So no flood of a model makes the program slow.
package ui

import (
	"context"
	"errors"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	turnwire "github.com/turnwire/turnwire/clients/go"
	pb "github.com/turnwire/turnwire/clients/go/opencode"

	"github.com/turnwire/turnwire/clients/go/cmd/turnwire/internal/remote"
	"github.com/turnwire/turnwire/clients/go/cmd/turnwire/internal/text"
)

const (
	// frame is the least time between two looks at a stream.
	frame = time.Second / 30
	// drawShare limits drawing to a part of the time: after a frame it waits so many times as long as that one took.
	drawShare = 3
	// noteTime is how long a note stays.
	noteTime = 8 * time.Second
	// wideColumns is the least width at which sessions and conversation are side by side.
	wideColumns = 84
	// listColumns is the width of the sessions beside a conversation.
	listColumns = 28
)

// Server is what the screen needs of a server. Package remote has it; tests have another one.
type Server interface {
	Follow(ctx context.Context, sessionID string, tell func(*turnwire.Conversation, error)) error
	FollowAll(ctx context.Context, tell func(*pb.SessionEvent)) error
	Links(ctx context.Context, tell func(online bool))
	Sessions(ctx context.Context, archived bool, title string) ([]*pb.SessionInfo, error)
	Rename(ctx context.Context, sessionID, title string) error
	Archive(ctx context.Context, sessionID string, away bool) error
	Delete(ctx context.Context, sessionID string) error
	Send(ctx context.Context, request *pb.SendMessageRequest) (*pb.SendMessageResponse, error)
	Abort(ctx context.Context, sessionID, turnID string) error
	Permit(ctx context.Context, answer *pb.PermissionResponse) error
	Answer(ctx context.Context, answer *pb.AnswerQuestionRequest) error
	EditQueued(ctx context.Context, request *pb.EditQueuedMessageRequest) error
	MoveQueued(ctx context.Context, sessionID, messageID, beforeID string) error
	RemoveQueued(ctx context.Context, sessionID, messageID string) error
	Regenerate(ctx context.Context, sessionID, messageID string, parts []*pb.MessagePart) error
	Alternatives(ctx context.Context, sessionID, messageID string) ([]*pb.SessionMessage, error)
	SelectAlternative(ctx context.Context, sessionID, messageID string) error
	Search(ctx context.Context, query, sessionID string) ([]*pb.SearchHit, error)
	Explain(ctx context.Context, sessionID, draft string) (*pb.ExplainContextResponse, error)
	Usage(ctx context.Context, sessionID string) (*remote.Usage, error)
}

// region is a part of the screen that keys go to.
type region int

const (
	onInput region = iota
	onMessages
	onQueue
	onAsking
	onSessions
)

// overlay covers the conversation until it is closed.
type overlay interface {
	// key takes a key, and says whether the overlay stays.
	key(a *App, key tea.KeyPressMsg) (tea.Cmd, bool)
	// paste takes pasted text.
	paste(text string)
	// view returns at most height lines of at most width columns.
	view(width, height int) []string
}

// App is the whole screen. Make it with New.
type App struct {
	ctx     context.Context
	server  Server
	address string
	now     func() time.Time

	width, height int
	region        region
	overlay       overlay
	sessions      sessionsPane
	chat          *chat
	input         composer
	asking        asking
	queueAt       int // the chosen entry of the queue

	online   bool
	wasThere bool // the server was reached at least once
	noted    string
	notedAs  text.Style
	noteID   int

	leaving bool          // ctrl+q was pressed while messages were on their way
	drawing time.Duration // what the last frame took
}

// New returns a screen for a server. The context ends every stream and call. With a session that one is opened first.
func New(ctx context.Context, server Server, address, sessionID string) *App {
	a := &App{ctx: ctx, server: server, address: address, now: time.Now, online: true}
	a.input = newComposer()
	a.sessions = newSessionsPane(ctx, server)
	a.width, a.height = 80, 24
	a.chat = newChat(ctx, server, sessionID)
	return a
}

// SessionID returns the open session; "" when none is.
func (a *App) SessionID() string { return a.chat.sessionID }

// Init starts the streams.
func (a *App) Init() tea.Cmd {
	link := make(chan bool, 16)
	go func() {
		a.server.Links(a.ctx, func(online bool) { link <- online })
		close(link)
	}()
	return tea.Batch(a.chat.start(), a.sessions.start(), nextLink(link), a.input.focus())
}

type (
	// doneMsg is the end of something that a person asked for.
	doneMsg struct {
		err   error
		apply func() tea.Cmd
	}
	linkMsg struct {
		online bool
		next   tea.Cmd
	}
	noteEndMsg int
)

func nextLink(link <-chan bool) tea.Cmd {
	return func() tea.Msg {
		online, ok := <-link
		if !ok {
			return nil
		}
		return linkMsg{online, nextLink(link)}
	}
}

// do carries out something in the background, then apply here. An error becomes a note, and failed is called when it is set.
func (a *App) do(call func(context.Context) error, apply func() tea.Cmd, failed func(error)) tea.Cmd {
	return func() tea.Msg {
		err := call(a.ctx)
		return doneMsg{err, func() tea.Cmd {
			switch {
			case err == nil && apply != nil:
				return apply()
			case err != nil && failed != nil:
				failed(err)
			}
			return nil
		}}
	}
}

// note shows a line for some seconds.
func (a *App) note(words string, style text.Style) tea.Cmd {
	a.noted, a.notedAs = text.Line(words), style
	a.noteID++
	id := a.noteID
	return tea.Tick(noteTime, func(time.Time) tea.Msg { return noteEndMsg(id) })
}

// Update takes in one message.
func (a *App) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch message := message.(type) {
	case tea.WindowSizeMsg:
		a.width, a.height = message.Width, message.Height
	case tea.KeyPressMsg:
		return a, a.key(message)
	case tea.PasteMsg:
		return a, a.paste(message.Content)
	case tea.ModeReportMsg:
		if message.Mode == ansi.ModeUnicodeCore && text.CountGraphemes(takesTogether(message.Value)) {
			a.chat.list.LayOutAnew()
		}
	case linkMsg:
		a.online = message.online
		a.wasThere = a.wasThere || message.online
		return a, message.next
	case doneMsg:
		cmd := message.apply()
		if message.err != nil && !errors.Is(message.err, context.Canceled) {
			cmd = tea.Batch(cmd, a.note(describe(message.err), text.Red))
		}
		return a, cmd
	case noteEndMsg:
		if int(message) == a.noteID {
			a.noted = ""
		}
	case chatMsg:
		return a, a.chatChanged(message)
	case sessionsMsg, sessionsRungMsg:
		cmd := a.sessions.update(message, a.chat.sessionID, a.pause())
		if err := a.sessions.ended; err != nil && !errors.Is(err, context.Canceled) {
			a.sessions.ended = nil
			cmd = tea.Batch(cmd, a.note("the list of sessions is no longer followed: "+describe(err), text.Red))
		}
		return a, cmd
	default:
		return a, a.input.update(message)
	}
	return a, nil
}

// takesTogether says whether Bubble Tea lets the terminal count characters that are made of several as one.
func takesTogether(value ansi.ModeSetting) bool {
	return value == ansi.ModeReset || value == ansi.ModeSet || value == ansi.ModePermanentlySet
}

// pause returns how long to wait before the next look at a stream.
func (a *App) pause() time.Duration {
	return max(frame, drawShare*a.drawing)
}

// chatChanged takes in what happened in the open session.
func (a *App) chatChanged(message chatMsg) tea.Cmd {
	if message.of != a.chat {
		return nil // of a session that was left
	}
	cmd := a.chat.take(a.pause())
	a.asking.take(a.chat.conversation, a.now())
	if a.region == onAsking && !a.asking.open() || a.region == onQueue && len(a.chat.queue) == 0 {
		a.region = onInput
	}
	a.queueAt = min(a.queueAt, max(len(a.chat.queue)-1, 0))
	if a.chat.deleted {
		cmd = tea.Batch(cmd, a.note("the session was deleted", text.Yellow), a.open(""))
	}
	return cmd
}

// open shows a session; "" shows an empty one, which the first message creates.
func (a *App) open(sessionID string) tea.Cmd {
	if sessionID != "" && sessionID == a.chat.sessionID && a.chat.ended == nil {
		a.region = onInput
		return nil
	}
	a.chat.stop()
	a.chat = newChat(a.ctx, a.server, sessionID)
	a.asking = asking{}
	a.overlay, a.region, a.queueAt = nil, onInput, 0
	a.input.leaveMode()
	a.sessions.read(sessionID)
	return a.chat.start()
}

// paste puts pasted text where the person writes.
func (a *App) paste(content string) tea.Cmd {
	content = text.Clean(content)
	switch {
	case a.overlay != nil:
		a.overlay.paste(content)
	case a.region == onSessions && a.sessions.line.active():
		a.sessions.line.paste(content)
	case a.region == onAsking:
		a.asking.paste(content)
	case len(content) > maxPaste:
		return a.note("the pasted text is too long for the input: pipe it into `turnwire chat` instead", text.Red)
	default:
		a.region = onInput
		return a.input.update(tea.PasteMsg{Content: content})
	}
	return nil
}

// describe tells an error in one line.
func describe(err error) string {
	var failed *turnwire.Error
	if !errors.As(err, &failed) {
		return err.Error()
	}
	word := failed.Reason
	if word == "" {
		word = failed.Code.String()
	}
	told := word + ": " + failed.Message
	for _, field := range failed.Fields {
		if !strings.Contains(told, field.Description) {
			told += "; " + field.Description
		}
	}
	return told
}
