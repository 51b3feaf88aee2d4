package ui

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"google.golang.org/protobuf/proto"

	turnwire "github.com/turnwire/turnwire/clients/go"
	pb "github.com/turnwire/turnwire/clients/go/opencode"

	"github.com/turnwire/turnwire/clients/go/cmd/turnwire/internal/text"
	"github.com/turnwire/turnwire/clients/go/cmd/turnwire/internal/transcript"
)

// bell wakes the screen: however often it is rung, the screen looks once.
type bell chan struct{}

func (b bell) ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}

// wait returns a command that pauses, then waits for the bell and answers a message. It ends with the context.
func (b bell) wait(ctx context.Context, pause time.Duration, message tea.Msg) tea.Cmd {
	return func() tea.Msg {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
		select {
		case <-b:
			return message
		case <-ctx.Done():
			return nil
		}
	}
}

// chatMsg says that something changed in a session.
type chatMsg struct{ of *chat }

// chat is the open session.
type chat struct {
	server    Server
	sessionID string // "" until the first message has created it
	ctx       context.Context
	cancel    context.CancelFunc
	bell      bell

	mu   sync.Mutex // protects told alone; held for a moment by the stream and by the screen
	told stateTold

	outbox       []*pb.SendMessageRequest // messages on their way, the first one is being sent
	waitFor      string                   // a message to show once it is there
	conversation *turnwire.Conversation   // nil until it was read
	list         transcript.List
	queue        []*pb.SessionMessage
	policies     map[string]pb.BusyPolicy
	lost         error
	ended        error // why the session is no longer followed
	deleted      bool
}

// stateTold is what the stream told last.
type stateTold struct {
	conversation *turnwire.Conversation
	lost, ended  error
	over         bool
}

func newChat(ctx context.Context, server Server, sessionID string) *chat {
	c := &chat{server: server, sessionID: sessionID, bell: make(bell, 1)}
	c.ctx, c.cancel = context.WithCancel(ctx)
	return c
}

// start follows the session, if there is one yet.
func (c *chat) start() tea.Cmd {
	if c.sessionID == "" {
		return nil
	}
	go func() {
		err := c.server.Follow(c.ctx, c.sessionID, func(conversation *turnwire.Conversation, lost error) {
			c.mu.Lock()
			c.told.conversation, c.told.lost = conversation, lost
			c.mu.Unlock()
			c.bell.ring()
		})
		c.mu.Lock()
		c.told.ended, c.told.over = err, true
		c.mu.Unlock()
		c.bell.ring()
	}()
	return c.bell.wait(c.ctx, 0, chatMsg{c})
}

// stop ends the stream. Messages that are being sent are sent all the same.
func (c *chat) stop() { c.cancel() }

// take looks at what the stream told, and waits for more after a pause.
func (c *chat) take(pause time.Duration) tea.Cmd {
	c.mu.Lock()
	told := c.told
	c.mu.Unlock()
	c.conversation, c.lost, c.ended = told.conversation, told.lost, told.ended
	if c.conversation != nil {
		c.list.Set(c.conversation.Messages())
		c.queue = c.conversation.Waiting()
		entries, _ := c.conversation.Queue()
		c.policies = make(map[string]pb.BusyPolicy, len(entries))
		for _, entry := range entries {
			c.policies[entry.GetMessageId()] = entry.GetBusyPolicy()
		}
		if c.waitFor != "" && c.list.Choose(c.waitFor) {
			c.waitFor = ""
		}
	}
	c.deleted = told.over && told.ended == nil && c.conversation != nil && c.conversation.Deleted()
	if told.over {
		return nil
	}
	return c.bell.wait(c.ctx, pause, chatMsg{c})
}

// runs says whether a turn runs.
func (c *chat) runs() bool {
	return c.conversation != nil && c.conversation.Status() == pb.SessionStatus_SESSION_STATUS_RUNNING
}

// turn returns the id of the turn that is answering now, as far as it is known.
func (c *chat) turn() string {
	if c.conversation == nil {
		return ""
	}
	messages := c.conversation.Messages()
	for _, message := range slices.Backward(messages) {
		if message.GetTurnId() != "" {
			return message.GetTurnId()
		}
	}
	return ""
}

// title names the session.
func (c *chat) title() string {
	switch {
	case c.sessionID == "":
		return "New session"
	case c.conversation == nil || c.conversation.Session() == nil:
		return "…"
	case c.conversation.Session().GetTitle() != "":
		return text.Line(c.conversation.Session().GetTitle())
	default:
		return "Untitled " + c.sessionID
	}
}

// activity tells what goes on, for the line above the input; "" when nothing does.
func (c *chat) activity() string {
	if len(c.outbox) > 0 {
		return fmt.Sprintf("sending %d…", len(c.outbox))
	}
	if c.conversation == nil {
		if c.sessionID != "" {
			return "reading the conversation…"
		}
		return ""
	}
	if notice := c.conversation.Notice(); notice != nil {
		if retry := notice.GetRetryScheduled(); retry != nil {
			return fmt.Sprintf("attempt %d failed (%s), again in %s", retry.GetAttempt(),
				text.Line(retry.GetFailure().GetReason()), retry.GetDelay().AsDuration().Round(time.Second/10))
		}
		if compaction := notice.GetCompactionStarted(); compaction != nil {
			return fmt.Sprintf("summarising %d messages…", compaction.GetMessageCount())
		}
	}
	if c.runs() {
		return "answering…  ctrl+c ends it"
	}
	return ""
}

// lastCost tells what the last turn has used: by its own sum when its end was seen, else by its messages.
func (c *chat) lastCost() string {
	if c.conversation == nil || c.runs() {
		return ""
	}
	last := c.turn()
	if turn := c.conversation.EndedTurn(); turn.GetTurnId() == last && last != "" {
		return cost(turn.GetUsage(), turn.CostPicoUsd)
	}
	var tokens pb.TokenUsage
	var pico int64
	reported, priced := false, true
	for _, message := range c.conversation.Messages() {
		if message.GetTurnId() != last || last == "" || message.GetType() != pb.MessageType_MESSAGE_TYPE_ASSISTANT {
			continue
		}
		usage := message.GetUsage()
		reported = reported || usage != nil
		priced = priced && message.CostPicoUsd != nil
		tokens.InputTokens = proto.Uint64(tokens.GetInputTokens() + usage.GetInputTokens())
		tokens.CacheReadTokens = proto.Uint64(tokens.GetCacheReadTokens() + usage.GetCacheReadTokens())
		tokens.CacheWriteTokens = proto.Uint64(tokens.GetCacheWriteTokens() + usage.GetCacheWriteTokens())
		tokens.OutputTokens = proto.Uint64(tokens.GetOutputTokens() + usage.GetOutputTokens())
		tokens.ReasoningTokens = proto.Uint64(tokens.GetReasoningTokens() + usage.GetReasoningTokens())
		pico += message.GetCostPicoUsd()
	}
	switch {
	case !reported:
		return ""
	case !priced:
		return cost(&tokens, nil)
	default:
		return cost(&tokens, &pico)
	}
}

// cost writes tokens and money for people; money that is not known is left out.
func cost(usage *pb.TokenUsage, pico *int64) string {
	told := transcript.Tokens(usage)
	if pico != nil {
		told += " " + transcript.Money(*pico)
	}
	return told
}
