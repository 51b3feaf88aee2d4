package ui

import (
	"context"
	"crypto/rand"
	"slices"

	tea "charm.land/bubbletea/v2"

	pb "github.com/turnwire/turnwire/clients/go/opencode"

	"github.com/turnwire/turnwire/clients/go/cmd/turnwire/internal/remote"
	"github.com/turnwire/turnwire/clients/go/cmd/turnwire/internal/text"
)

// key takes one key: the overlay first, then what works everywhere, then the region with the focus.
func (a *App) key(key tea.KeyPressMsg) tea.Cmd {
	a.noted = ""
	if key.String() == "ctrl+q" {
		return a.quit()
	}
	a.leaving = false
	if a.overlay != nil {
		cmd, stays := a.overlay.key(a, key)
		if !stays {
			a.overlay = nil
		}
		return cmd
	}
	if cmd, taken := a.keyAnywhere(key); taken {
		return cmd
	}
	switch a.region {
	case onSessions:
		return a.sessions.key(a, key)
	case onMessages:
		return a.keyOnMessages(key)
	case onQueue:
		return a.keyOnQueue(key)
	case onAsking:
		return a.asking.key(a, key)
	default:
		return a.keyOnInput(key)
	}
}

// keyAnywhere takes the keys that work in every region.
func (a *App) keyAnywhere(key tea.KeyPressMsg) (tea.Cmd, bool) {
	if a.region == onSessions && a.sessions.line.active() || a.region == onAsking && a.asking.writing() {
		return nil, false
	}
	switch key.String() {
	case "f1":
		a.overlay = newHelp()
	case "ctrl+c":
		return a.abort(), true
	case "tab":
		a.nextRegion(1)
	case "shift+tab":
		a.nextRegion(-1)
	case "esc":
		a.leave()
	case "pgup":
		if a.region == onSessions {
			return nil, false
		}
		a.chat.list.Page(-1)
	case "pgdown":
		if a.region == onSessions {
			return nil, false
		}
		a.chat.list.Page(1)
	case "ctrl+up":
		a.chat.list.Scroll(-1)
	case "ctrl+down":
		a.chat.list.Scroll(1)
	case "ctrl+home":
		a.chat.list.ToStart()
	case "ctrl+end":
		a.chat.list.ToEnd()
	case "ctrl+o":
		a.chat.list.ToggleFold()
	case "ctrl+l", "f2":
		a.region = onSessions
		a.sessions.choose(a.chat.sessionID)
	case "ctrl+n":
		return a.open(""), true
	case "ctrl+f", "f3":
		a.overlay = newSearch(a.chat.sessionID)
	case "ctrl+g":
		if len(a.chat.queue) == 0 {
			return a.note("no message waits", text.Faint), true
		}
		a.region = onQueue
	case "ctrl+y":
		if !a.asking.open() {
			return a.note("nothing is asked", text.Faint), true
		}
		a.region = onAsking
		a.asking.show(a.now())
	case "ctrl+t", "f4":
		return a.explain(), true
	case "ctrl+r", "f5":
		return a.usage(), true
	case "ctrl+z":
		return tea.Suspend, true
	case "ctrl+p":
		a.region = onMessages
		if a.chat.list.Chosen() == nil {
			a.chat.list.ChooseNext(0)
		}
	default:
		return nil, false
	}
	return nil, true
}

// nextRegion gives the focus to the next region that has something.
func (a *App) nextRegion(step int) {
	regions := []region{onInput}
	if a.chat.list.Len() > 0 {
		regions = append(regions, onMessages)
	}
	if len(a.chat.queue) > 0 {
		regions = append(regions, onQueue)
	}
	if a.asking.open() {
		regions = append(regions, onAsking)
	}
	regions = append(regions, onSessions)
	at := slices.Index(regions, a.region)
	a.region = regions[(max(at, 0)+step+len(regions))%len(regions)]
	switch a.region {
	case onMessages:
		if a.chat.list.Chosen() == nil {
			a.chat.list.ChooseNext(0)
		}
	case onAsking:
		a.asking.show(a.now())
	case onSessions:
		a.sessions.choose(a.chat.sessionID)
	default:
	}
}

// leave goes back to the input, and out of editing.
func (a *App) leave() {
	if a.region == onInput {
		a.input.leaveMode()
	}
	if a.region == onMessages {
		a.chat.list.Choose("")
	}
	a.region = onInput
}

// keyOnInput takes a key for the input.
func (a *App) keyOnInput(key tea.KeyPressMsg) tea.Cmd {
	switch key.String() {
	case "enter":
		return a.send(pb.BusyPolicy_BUSY_POLICY_QUEUE)
	case "ctrl+x":
		return a.send(pb.BusyPolicy_BUSY_POLICY_INTERRUPT)
	case "ctrl+s":
		return a.send(pb.BusyPolicy_BUSY_POLICY_STEER)
	case "ctrl+d":
		if a.input.text() == "" {
			return a.quit()
		}
	case "up":
		if a.input.text() == "" && a.chat.list.Len() > 0 {
			a.region = onMessages
			a.chat.list.ChooseNext(0)
			return nil
		}
	}
	return a.input.update(key)
}

// quit ends the program. While messages are on their way it asks for a second press.
func (a *App) quit() tea.Cmd {
	if on := len(a.chat.outbox); on > 0 && !a.leaving {
		a.leaving = true
		return a.note(plural(on, "message is", "messages are")+" not sent yet; ctrl+q leaves without", text.Red)
	}
	return tea.Quit
}

// abort ends the running turn; when none runs it empties the input.
func (a *App) abort() tea.Cmd {
	c := a.chat
	if c.runs() {
		turn := c.turn()
		return a.do(func(ctx context.Context) error { return a.server.Abort(ctx, c.sessionID, turn) }, nil, nil)
	}
	if a.input.purpose != toSend {
		a.input.leaveMode()
		return nil
	}
	if a.input.text() != "" {
		a.input.put("")
		return nil
	}
	return a.note("ctrl+d leaves the program", text.Faint)
}

// send does with the input what it is for.
func (a *App) send(policy pb.BusyPolicy) tea.Cmd {
	if a.input.empty() {
		return nil
	}
	written, purpose, about, session := a.input.text(), a.input.purpose, a.input.about, a.chat.sessionID
	switch purpose {
	case toEditQueued:
		a.input.leaveMode()
		request := &pb.EditQueuedMessageRequest{
			SessionId: session, MessageId: about, Parts: remote.TextParts(written),
		}
		if policy != pb.BusyPolicy_BUSY_POLICY_QUEUE {
			request.BusyPolicy = policy
		}
		return a.do(func(ctx context.Context) error { return a.server.EditQueued(ctx, request) }, nil,
			func(error) { a.input.edit(purpose, about, written) })
	case toAskAgain:
		a.input.leaveMode()
		a.chat.list.Choose("")
		a.chat.list.ToEnd()
		parts := remote.TextParts(written)
		return a.do(func(ctx context.Context) error { return a.server.Regenerate(ctx, session, about, parts) }, nil,
			func(error) { a.input.edit(purpose, about, written) })
	default:
		request := &pb.SendMessageRequest{
			SessionId: session, Parts: remote.TextParts(written), RequestId: rand.Text(), BusyPolicy: policy,
		}
		if policy != pb.BusyPolicy_BUSY_POLICY_QUEUE && !a.chat.runs() {
			request.BusyPolicy = pb.BusyPolicy_BUSY_POLICY_QUEUE
		} else if policy != pb.BusyPolicy_BUSY_POLICY_QUEUE {
			request.ExpectedTurnId = a.chat.turn()
		}
		a.input.put("")
		a.chat.list.Choose("")
		a.chat.list.ToEnd()
		a.chat.outbox = append(a.chat.outbox, request)
		if len(a.chat.outbox) > 1 {
			return nil // after those before it
		}
		return a.sendNext(a.chat)
	}
}

// sendNext sends the first message of the outbox, and the next ones after it, so that they keep their order.
func (a *App) sendNext(c *chat) tea.Cmd {
	if len(c.outbox) == 0 {
		return nil
	}
	request := c.outbox[0]
	if request.GetSessionId() == "" {
		request.SessionId = c.sessionID // the message before has created it
	}
	var answer *pb.SendMessageResponse
	return a.do(
		func(context.Context) error {
			var err error
			answer, err = a.server.Send(a.ctx, request)
			return err
		},
		func() tea.Cmd {
			c.outbox = c.outbox[1:]
			var begin tea.Cmd
			if c.sessionID == "" {
				c.sessionID = answer.GetSessionId()
				if c == a.chat {
					begin = c.start()
				}
			}
			return tea.Batch(begin, a.sendNext(c))
		},
		func(error) {
			written := textOf(request.GetParts())
			for _, later := range c.outbox[1:] {
				written += "\n\n" + textOf(later.GetParts())
			}
			c.outbox = nil
			if a.input.text() != "" {
				written += "\n\n" + a.input.text()
			}
			a.input.put(written) // nothing that was written is lost
		})
}

// textOf returns the text of parts.
func textOf(parts []*pb.MessagePart) string {
	var joined string
	for _, part := range parts {
		joined += part.GetText().GetText()
	}
	return joined
}
