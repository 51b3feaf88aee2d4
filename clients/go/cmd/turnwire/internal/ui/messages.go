package ui

import (
	"context"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	turnwire "github.com/turnwire/turnwire/clients/go"
	pb "github.com/turnwire/turnwire/clients/go/opencode"

	"github.com/turnwire/turnwire/clients/go/cmd/turnwire/internal/text"
)

// keyOnMessages takes a key while messages are chosen.
func (a *App) keyOnMessages(key tea.KeyPressMsg) tea.Cmd {
	list := &a.chat.list
	switch key.String() {
	case "up", "k":
		list.ChooseNext(-1)
	case "down", "j":
		list.ChooseNext(1)
	case "home", "g":
		list.ChooseNext(-list.Len())
	case "end", "G":
		list.ChooseNext(list.Len())
	case "enter", "space", "o":
		list.ToggleFold()
	case "left", "h":
		return a.otherAlternative(-1)
	case "right", "l":
		return a.otherAlternative(1)
	case "r":
		return a.regenerate()
	case "e":
		return a.askAgain()
	}
	return nil
}

// regenerate has the chosen message answered again.
func (a *App) regenerate() tea.Cmd {
	chosen, session := a.chat.list.Chosen(), a.chat.sessionID
	if !answerable(chosen) {
		return a.note("choose a question or an answer", text.Faint)
	}
	a.leave()
	a.chat.list.ToEnd()
	return a.do(func(ctx context.Context) error {
		return a.server.Regenerate(ctx, session, chosen.GetMessageId(), nil)
	}, nil, nil)
}

// askAgain puts the chosen question into the input, to be changed and asked again.
func (a *App) askAgain() tea.Cmd {
	chosen := a.chat.list.Chosen()
	if chosen.GetType() != pb.MessageType_MESSAGE_TYPE_USER {
		return a.note("choose a message of yours", text.Faint)
	}
	if hasFiles(chosen) {
		return a.note("a message with files cannot be edited here", text.Faint)
	}
	a.input.edit(toAskAgain, chosen.GetMessageId(), text.Clean(turnwire.TextOf(chosen)))
	a.region = onInput
	return nil
}

// hasFiles says whether a message has files, which an edited text would take away.
func hasFiles(m *pb.SessionMessage) bool {
	return slices.ContainsFunc(m.GetParts(), func(part *pb.Part) bool { return part.GetFile() != nil })
}

func answerable(m *pb.SessionMessage) bool {
	return m.GetType() == pb.MessageType_MESSAGE_TYPE_USER || m.GetType() == pb.MessageType_MESSAGE_TYPE_ASSISTANT
}

// otherAlternative leads the conversation through the alternative before or after the chosen message.
func (a *App) otherAlternative(step int) tea.Cmd {
	chosen, c := a.chat.list.Chosen(), a.chat
	if chosen.GetAlternativeCount() < 2 {
		return a.note("the message has no alternatives; r answers again", text.Faint)
	}
	var other *pb.SessionMessage
	return a.do(
		func(ctx context.Context) error {
			messages, err := a.server.Alternatives(ctx, c.sessionID, chosen.GetMessageId())
			if err != nil {
				return err
			}
			for at, message := range messages {
				if message.GetMessageId() == chosen.GetMessageId() && at+step >= 0 && at+step < len(messages) {
					other = messages[at+step]
				}
			}
			if other == nil {
				return nil
			}
			return a.server.SelectAlternative(ctx, c.sessionID, other.GetMessageId())
		},
		func() tea.Cmd {
			if other == nil {
				return a.note("there is no further alternative", text.Faint)
			}
			c.waitFor = other.GetMessageId()
			c.bell.ring()
			return nil
		}, nil)
}

// keyOnQueue takes a key while a waiting message is chosen.
func (a *App) keyOnQueue(key tea.KeyPressMsg) tea.Cmd {
	queue, session := a.chat.queue, a.chat.sessionID
	if a.queueAt >= len(queue) {
		a.region = onInput
		return nil
	}
	chosen := queue[a.queueAt].GetMessageId()
	switch key.String() {
	case "up", "k":
		a.queueAt = max(a.queueAt-1, 0)
	case "down", "j":
		a.queueAt = min(a.queueAt+1, len(queue)-1)
	case "shift+up", "K":
		if a.queueAt == 0 {
			return nil
		}
		before := queue[a.queueAt-1].GetMessageId()
		a.queueAt--
		return a.move(session, chosen, before)
	case "shift+down", "J":
		if a.queueAt == len(queue)-1 {
			return nil
		}
		before := ""
		if a.queueAt+2 < len(queue) {
			before = queue[a.queueAt+2].GetMessageId()
		}
		a.queueAt++
		return a.move(session, chosen, before)
	case "e", "enter":
		if hasFiles(queue[a.queueAt]) {
			return a.note("a message with files cannot be edited here", text.Faint)
		}
		a.input.edit(toEditQueued, chosen, text.Clean(turnwire.TextOf(queue[a.queueAt])))
		a.region = onInput
	case "d", "delete", "backspace":
		return a.do(func(ctx context.Context) error { return a.server.RemoveQueued(ctx, session, chosen) }, nil, nil)
	case "s":
		return a.hurry(session, chosen, pb.BusyPolicy_BUSY_POLICY_STEER)
	case "x":
		return a.hurry(session, chosen, pb.BusyPolicy_BUSY_POLICY_INTERRUPT)
	}
	return nil
}

func (a *App) move(session, chosen, before string) tea.Cmd {
	return a.do(func(ctx context.Context) error { return a.server.MoveQueued(ctx, session, chosen, before) }, nil, nil)
}

// hurry lets a waiting message join or end the running turn.
func (a *App) hurry(session, chosen string, policy pb.BusyPolicy) tea.Cmd {
	request := &pb.EditQueuedMessageRequest{SessionId: session, MessageId: chosen, BusyPolicy: policy}
	return a.do(func(ctx context.Context) error { return a.server.EditQueued(ctx, request) }, nil, nil)
}

// queueLines shows the messages that wait: some of them, all when they are chosen among.
func (a *App) queueLines(width, height int) []string {
	queue := a.chat.queue
	if len(queue) == 0 || height <= 0 {
		return nil
	}
	focused := a.region == onQueue
	limit := min(3, height)
	if focused {
		limit = min(10, height)
	}
	first := 0
	if focused && a.queueAt >= limit {
		first = a.queueAt - limit + 1
	}
	var lines []string
	for at := first; at < min(len(queue), first+limit); at++ {
		word := ""
		switch a.chat.policies[queue[at].GetMessageId()] {
		case pb.BusyPolicy_BUSY_POLICY_STEER:
			word = "steers: "
		case pb.BusyPolicy_BUSY_POLICY_INTERRUPT:
			word = "next: "
		default:
			word = "waits: "
		}
		says := strings.TrimSpace(text.Line(cutText(turnwire.TextOf(queue[at]), 1000)))
		if says == "" {
			says = "(files)"
		}
		line := text.Fit("  "+word+says, width)
		if focused && at == a.queueAt {
			line = text.Reverse.On(text.Fit("▶ "+word+says, width))
		} else {
			line = text.Yellow.On(line)
		}
		lines = append(lines, line)
	}
	if hidden := len(queue) - len(lines); hidden > 0 && len(lines) > 0 && !focused {
		lines[len(lines)-1] = text.Fit(text.Yellow.On("  … "+plural(hidden+1, "message", "messages")+" more wait"), width)
	}
	return lines
}
