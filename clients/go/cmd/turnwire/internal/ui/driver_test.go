package ui

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	turnwire "github.com/turnwire/turnwire/clients/go"
	pb "github.com/turnwire/turnwire/clients/go/opencode"

	"github.com/turnwire/turnwire/clients/go/cmd/turnwire/internal/remote"
)

var styles = regexp.MustCompile("\x1b\\[[0-9;]*m")

// fake is a server of one session. Methods that it does not have panic.
type fake struct {
	Server
	mu           sync.Mutex
	conversation *turnwire.Conversation
	tell         func(*turnwire.Conversation, error)
	tellAll      func(*pb.SessionEvent)
	link         chan bool
	sessions     []*pb.SessionInfo
	calls        []any
	fails        error
	ends         chan error    // ends what Follow does
	hold         chan struct{} // Send waits for it when it is set
}

func (f *fake) Follow(ctx context.Context, sessionID string, tell func(*turnwire.Conversation, error)) error {
	f.mu.Lock()
	if f.conversation == nil || f.conversation.SessionID() != sessionID {
		f.conversation = turnwire.NewConversation(sessionID)
	}
	f.tell = tell
	f.mu.Unlock()
	tell(f.conversation, nil)
	select {
	case err := <-f.ends:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *fake) FollowAll(ctx context.Context, tell func(*pb.SessionEvent)) error {
	f.mu.Lock()
	f.tellAll = tell
	f.mu.Unlock()
	<-ctx.Done()
	return ctx.Err()
}

func (f *fake) Links(ctx context.Context, tell func(bool)) {
	for {
		select {
		case online := <-f.link:
			tell(online)
		case <-ctx.Done():
			return
		}
	}
}

func (f *fake) note(call any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, call)
	return f.fails
}

func (f *fake) Sessions(_ context.Context, archived bool, title string) ([]*pb.SessionInfo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var found []*pb.SessionInfo
	for _, session := range f.sessions {
		if strings.Contains(session.GetTitle(), title) && archived == (session.GetArchiveTime() != nil) {
			found = append(found, session)
		}
	}
	return found, nil
}

func (f *fake) Send(_ context.Context, request *pb.SendMessageRequest) (*pb.SendMessageResponse, error) {
	if f.hold != nil {
		<-f.hold
	}
	return &pb.SendMessageResponse{SessionId: "ses_1"}, f.note(request)
}

func (f *fake) Rename(_ context.Context, id, title string) error { return f.note([]string{id, title}) }
func (f *fake) Delete(_ context.Context, id string) error        { return f.note("delete " + id) }
func (f *fake) Abort(_ context.Context, id, turn string) error   { return f.note([]string{id, turn}) }
func (f *fake) Permit(_ context.Context, answer *pb.PermissionResponse) error {
	return f.note(answer)
}

func (f *fake) Answer(_ context.Context, answer *pb.AnswerQuestionRequest) error {
	return f.note(answer)
}

func (f *fake) EditQueued(_ context.Context, request *pb.EditQueuedMessageRequest) error {
	return f.note(request)
}

func (f *fake) MoveQueued(_ context.Context, _, message, before string) error {
	return f.note([]string{message, before})
}

func (f *fake) Usage(context.Context, string) (*remote.Usage, error) {
	return &remote.Usage{Quotas: []*pb.Quota{{Name: "tokens_per_day", Used: 5}}}, f.note("usage")
}

func (f *fake) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.calls)
}

func (f *fake) last() any {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[len(f.calls)-1]
}

// driver runs the screen as Bubble Tea does, without a terminal.
type driver struct {
	t        *testing.T
	app      *App
	server   *fake
	messages chan tea.Msg
	quit     bool
	clock    time.Time
}

func drive(t *testing.T, sessionID string) *driver {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	server := &fake{link: make(chan bool), ends: make(chan error)}
	d := &driver{t: t, server: server, messages: make(chan tea.Msg, 100), clock: time.Unix(1000, 0)}
	d.app = New(ctx, server, "test:1", sessionID)
	d.app.now = func() time.Time { return d.clock }
	d.run(d.app.Init())
	d.take(tea.WindowSizeMsg{Width: 100, Height: 30})
	d.until("the sessions are followed", func() bool {
		server.mu.Lock()
		defer server.mu.Unlock()
		return server.tellAll != nil
	})
	if sessionID != "" {
		d.until("the conversation is read", func() bool { return d.app.chat.conversation != nil })
	}
	return d
}

func (d *driver) run(cmd tea.Cmd) {
	if cmd == nil {
		return
	}
	go func() {
		if message := cmd(); message != nil {
			d.messages <- message
		}
	}()
}

func (d *driver) take(message tea.Msg) {
	switch message := message.(type) {
	case tea.BatchMsg:
		for _, cmd := range message {
			d.run(cmd)
		}
	case tea.QuitMsg:
		d.quit = true
	default:
		_, cmd := d.app.Update(message)
		d.app.View()
		d.run(cmd)
	}
}

// until takes messages until something is so.
func (d *driver) until(what string, so func() bool) {
	d.t.Helper()
	deadline := time.After(10 * time.Second)
	for !so() {
		select {
		case message := <-d.messages:
			d.take(message)
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			d.t.Fatalf("it never came that %s:\n%s", what, d.screen())
		}
	}
}

// shows waits until a text is on the screen.
func (d *driver) shows(wanted string) {
	d.t.Helper()
	d.until(wanted+" is shown", func() bool { return strings.Contains(d.screen(), wanted) })
}

// gone waits until a text is not on the screen.
func (d *driver) gone(unwanted string) {
	d.t.Helper()
	d.until(unwanted+" is gone", func() bool { return !strings.Contains(d.screen(), unwanted) })
}

func (d *driver) screen() string {
	return styles.ReplaceAllString(d.app.View().Content, "")
}

var special = map[string]tea.Key{
	"enter": {Code: tea.KeyEnter}, "esc": {Code: tea.KeyEscape}, "tab": {Code: tea.KeyTab}, "up": {Code: tea.KeyUp},
	"down": {Code: tea.KeyDown}, "f1": {Code: tea.KeyF1}, "shift+down": {Code: tea.KeyDown, Mod: tea.ModShift},
	"pgup": {Code: tea.KeyPgUp},
}

// press presses keys by their names, such as "ctrl+c".
func (d *driver) press(names ...string) {
	for _, name := range names {
		key, ok := special[name]
		if letter, found := strings.CutPrefix(name, "ctrl+"); found && !ok {
			key, ok = tea.Key{Code: rune(letter[0]), Mod: tea.ModCtrl}, true
		}
		if !ok {
			d.write(name)
			continue
		}
		d.take(tea.KeyPressMsg(key))
	}
}

// write types text.
func (d *driver) write(text string) {
	for _, letter := range text {
		d.take(tea.KeyPressMsg(tea.Key{Code: letter, Text: string(letter)}))
	}
}

// happens lets events happen in the session.
func (d *driver) happens(events ...*pb.SessionEvent) {
	d.server.mu.Lock()
	tell, conversation := d.server.tell, d.server.conversation
	d.server.mu.Unlock()
	for _, event := range events {
		conversation.Apply(event)
	}
	tell(conversation, nil)
}

var errRefused = errors.New("refused by the test")
