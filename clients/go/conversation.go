package turnwire

import (
	"slices"
	"strings"
	"sync"

	pb "github.com/turnwire/turnwire/clients/go/opencode"
)

// Conversation is what a client holds of one session: its messages with their parts, what waits, and what people are asked.
// [Client.Watch] keeps one; a program that reads events in another way makes one with [NewConversation] and gives it every
// event.
//
// It is safe for concurrent use. What it returns is shared and never changes: see the package documentation. A text that
// grows is not copied for each piece that comes, nor when it is read.
type Conversation struct {
	mu sync.Mutex // protects all below; held for one event or one read
	folded
}

// folded is what the events of a session made.
type folded struct {
	sessionID string
	held      map[string]*heldMessage
	order     []string // ids of all messages, those that wait too
	waiting   []*pb.QueueEntry
	revision  uint64

	session     *pb.SessionInfo
	status      pb.SessionStatus
	permissions []*pb.PermissionRequest
	questions   []*pb.Question
	notice      *pb.SessionEvent
	ended       *pb.Turn

	sequence uint64
	reread   bool
	deleted  bool

	messages []*pb.SessionMessage // answer of Messages; nil when something changed
}

// NewConversation returns an empty conversation of a session.
func NewConversation(sessionID string) *Conversation {
	return &Conversation{folded: folded{sessionID: sessionID, held: map[string]*heldMessage{}}}
}

// SessionID returns the session.
func (c *Conversation) SessionID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sessionID
}

// Messages returns the messages in order, without those that wait. After a change it costs a copy of the list of pointers;
// [Conversation.Message] does not.
func (c *Conversation) Messages() []*pb.SessionMessage {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.messages == nil {
		c.messages = make([]*pb.SessionMessage, 0, len(c.order))
		waits := c.waits()
		for _, id := range c.order {
			if !waits[id] {
				c.messages = append(c.messages, c.held[id].show())
			}
		}
	}
	return slices.Clip(c.messages)
}

// Waiting returns the messages that wait for their turn, next first.
func (c *Conversation) Waiting() []*pb.SessionMessage {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []*pb.SessionMessage
	for _, entry := range c.waiting {
		if message := c.held[entry.GetMessageId()]; message != nil {
			found = append(found, message.show())
		}
	}
	return found
}

// Queue returns the entries of the messages that wait, next first, and the revision of the queue.
func (c *Conversation) Queue() (entries []*pb.QueueEntry, revision uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.waiting), c.revision
}

// Message returns a message, nil when the conversation does not hold it.
func (c *Conversation) Message(messageID string) *pb.SessionMessage {
	c.mu.Lock()
	defer c.mu.Unlock()
	if message := c.held[messageID]; message != nil {
		return message.show()
	}
	return nil
}

// Text returns the text parts of a message, joined; "" when the conversation does not hold it.
func (c *Conversation) Text(messageID string) string {
	return TextOf(c.Message(messageID))
}

// TextOf returns the text parts of a message, joined.
func TextOf(message *pb.SessionMessage) string {
	var found string
	var joined []string
	for _, part := range message.GetParts() {
		if text := part.GetText().GetText(); text != "" {
			found = text
			joined = append(joined, text)
		}
	}
	if len(joined) < 2 {
		return found // shared, whatever its length
	}
	return strings.Join(joined, "")
}

// Session returns what the server says of the session; nil until it said something, and after its deletion.
func (c *Conversation) Session() *pb.SessionInfo {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

// Status returns whether a turn runs.
func (c *Conversation) Status() pb.SessionStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

// Permissions returns the permission requests that are open, oldest first.
func (c *Conversation) Permissions() []*pb.PermissionRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.permissions)
}

// Questions returns the questions of tools that are open, oldest first.
func (c *Conversation) Questions() []*pb.Question {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.questions)
}

// Notice returns the retry_scheduled or compaction_started event that tells what the running turn waits for. It is nil once
// the turn goes on.
func (c *Conversation) Notice() *pb.SessionEvent {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.notice
}

// EndedTurn returns the turn that ended last, as far as an event told it.
func (c *Conversation) EndedTurn() *pb.Turn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

// Sequence returns the greatest sequence that was told.
func (c *Conversation) Sequence() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sequence
}

// NeedsReread reports whether an event said that what is held is no longer true. It may be shown until [Conversation.Load] puts a
// fresh list in its place. [Client.Watch] does so by itself.
func (c *Conversation) NeedsReread() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reread
}

// Deleted reports whether the session was deleted.
func (c *Conversation) Deleted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deleted
}

// Load puts the messages of a list in place of all that is held: those of all pages of ListMessages, oldest first. The
// sequence is that of the first page, whose resume token says where to watch on; that watch brings the session and the open
// requests.
func (c *Conversation) Load(messages []*pb.SessionMessage, sequence uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop()
	c.reread, c.deleted, c.sequence = false, false, sequence
	for _, message := range messages {
		c.add(message)
	}
}

// Apply takes in one event, in the order in which they came. The event must not be changed any more. Events of other
// sessions, and kinds that this package does not know, change nothing.
func (c *Conversation) Apply(event *pb.SessionEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id := event.GetSessionId(); id != "" && id != c.sessionID {
		if c.sessionID != "" {
			return
		}
		c.sessionID = id
	}
	c.apply(event)
}

// become takes all that another conversation holds, which is not used any more.
func (c *Conversation) become(other *Conversation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.folded = other.folded
}

// waits returns the ids of the messages that wait.
func (c *Conversation) waits() map[string]bool {
	if len(c.waiting) == 0 {
		return nil
	}
	waits := make(map[string]bool, len(c.waiting))
	for _, entry := range c.waiting {
		waits[entry.GetMessageId()] = true
	}
	return waits
}

// part returns the text and the content of a part as it is now.
func (c *Conversation) part(messageID string, index uint32) *pb.Part {
	c.mu.Lock()
	defer c.mu.Unlock()
	if message := c.held[messageID]; message != nil {
		if part := message.part(index); part != nil {
			return part.show()
		}
	}
	return nil
}
