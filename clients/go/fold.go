package turnwire

import (
	"slices"

	pb "github.com/turnwire/turnwire/clients/go/opencode"
)

// apply does what docs/reference/events.md says that a client does with each kind of event.
func (c *Conversation) apply(event *pb.SessionEvent) {
	if sequence := event.GetSequence(); sequence > c.sequence {
		c.sequence = sequence
	} else if sequence != 0 {
		return // of a watch that began before what is held
	}
	switch kind := event.GetKind().(type) {
	case *pb.SessionEvent_PartDelta: // most events are of this kind
		c.notice = nil
		if part := c.heldPart(kind.PartDelta.GetMessageId(), kind.PartDelta.GetPartIndex()); part != nil && part.grow(kind.PartDelta) {
			c.changed(kind.PartDelta.GetMessageId())
		}
		return
	case nil:
		c.reread = c.reread || event.GetRereadIfUnknown()
		return
	}
	c.updateNotice(event)
	if !c.applyToMessage(event) && !c.applyToQueue(event) {
		c.applyToSession(event)
	}
}

// applyToMessage takes in the events that change messages and parts; false for all others.
func (c *Conversation) applyToMessage(event *pb.SessionEvent) bool {
	switch kind := event.GetKind().(type) {
	case *pb.SessionEvent_MessageAdded:
		c.setTitle(kind.MessageAdded.GetSessionTitle())
		if message := kind.MessageAdded.GetMessage(); c.held[message.GetMessageId()] == nil {
			c.add(message)
		}
	case *pb.SessionEvent_PartStarted:
		if message := c.held[kind.PartStarted.GetMessageId()]; message != nil {
			if message.part(kind.PartStarted.GetPart().GetIndex()) == nil {
				message.put(kind.PartStarted.GetPart())
				c.changed(kind.PartStarted.GetMessageId())
			}
		}
	case *pb.SessionEvent_PartFinished:
		if message := c.held[kind.PartFinished.GetMessageId()]; message != nil {
			message.put(kind.PartFinished.GetPart())
			c.changed(kind.PartFinished.GetMessageId())
		}
	case *pb.SessionEvent_MessageSnapshot:
		c.put(kind.MessageSnapshot.GetMessage())
	case *pb.SessionEvent_MessageReplaced:
		if c.held[kind.MessageReplaced.GetMessage().GetMessageId()] != nil {
			c.put(kind.MessageReplaced.GetMessage())
		}
	case *pb.SessionEvent_ToolCallUpdated:
		update := kind.ToolCallUpdated
		if part := c.heldPart(update.GetMessageId(), update.GetPartIndex()); part != nil {
			part.setCall(update.GetState())
			c.changed(update.GetMessageId())
		}
	case *pb.SessionEvent_ToolLog:
		line := kind.ToolLog
		if part := c.heldPart(line.GetMessageId(), line.GetPartIndex()); part != nil && part.log(line) {
			c.changed(line.GetMessageId())
		}
	case *pb.SessionEvent_MessageFinished:
		if message := c.held[kind.MessageFinished.GetMessage().GetMessageId()]; message != nil {
			message.finish(kind.MessageFinished.GetMessage())
			c.changed(kind.MessageFinished.GetMessage().GetMessageId())
		}
	case *pb.SessionEvent_MessageRemoved:
		c.remove(kind.MessageRemoved.GetMessageId())
		c.stopWaiting(kind.MessageRemoved.GetMessageId())
	case *pb.SessionEvent_ConversationChanged:
		c.cut(kind.ConversationChanged)
	default:
		return false
	}
	return true
}

// applyToQueue takes in the events of turns and of messages that wait; false for all others.
func (c *Conversation) applyToQueue(event *pb.SessionEvent) bool {
	switch kind := event.GetKind().(type) {
	case *pb.SessionEvent_TurnStarted:
		c.begin(kind.TurnStarted.GetTurn().GetUserMessageId())
	case *pb.SessionEvent_TurnSteered:
		c.begin(kind.TurnSteered.GetUserMessageId())
	case *pb.SessionEvent_TurnEnded:
		c.ended = kind.TurnEnded.GetTurn()
	case *pb.SessionEvent_QueueChanged:
		c.waiting, c.revision, c.messages = kind.QueueChanged.GetEntries(), kind.QueueChanged.GetRevision(), nil
	default:
		return false
	}
	return true
}

// applyToSession takes in what is about the session and what people are asked. What has nothing to fold is skipped.
func (c *Conversation) applyToSession(event *pb.SessionEvent) {
	switch kind := event.GetKind().(type) {
	case *pb.SessionEvent_SessionCreated:
		c.setSession(kind.SessionCreated.GetSession())
	case *pb.SessionEvent_SessionUpdated:
		c.setSession(kind.SessionUpdated.GetSession())
	case *pb.SessionEvent_SessionSnapshot:
		snapshot := kind.SessionSnapshot
		c.setSession(snapshot.GetSession())
		c.waiting = append(c.leftOut(snapshot.GetQueue()), snapshot.GetQueue()...)
		c.revision, c.messages = snapshot.GetQueueRevision(), nil
	case *pb.SessionEvent_SessionStatusChanged:
		c.status = kind.SessionStatusChanged.GetStatus()
		if c.session != nil {
			c.session = shallow(c.session)
			c.session.Status = c.status
		}
	case *pb.SessionEvent_SessionDeleted:
		c.drop()
		c.deleted = true
	case *pb.SessionEvent_PermissionAsked:
		c.ask(kind.PermissionAsked.GetPermission())
	case *pb.SessionEvent_PermissionSnapshot:
		c.ask(kind.PermissionSnapshot.GetPermission())
	case *pb.SessionEvent_PermissionReplied:
		c.permissions = slices.DeleteFunc(slices.Clone(c.permissions), func(open *pb.PermissionRequest) bool {
			return open.GetId() == kind.PermissionReplied.GetPermissionId()
		})
	case *pb.SessionEvent_QuestionAsked:
		c.question(kind.QuestionAsked.GetQuestion())
	case *pb.SessionEvent_QuestionSnapshot:
		c.question(kind.QuestionSnapshot.GetQuestion())
	case *pb.SessionEvent_QuestionAnswered:
		c.questions = slices.DeleteFunc(slices.Clone(c.questions), func(open *pb.Question) bool {
			return open.GetQuestionId() == kind.QuestionAnswered.GetQuestionId()
		})
	case *pb.SessionEvent_Resync:
		c.reread = true
	}
}

// updateNotice keeps a notice until the next event of its turn.
func (c *Conversation) updateNotice(event *pb.SessionEvent) {
	switch event.GetKind().(type) {
	case *pb.SessionEvent_RetryScheduled, *pb.SessionEvent_CompactionStarted:
		c.notice = event
	default:
		if c.notice != nil && (event.GetTurnId() == c.notice.GetTurnId()) {
			c.notice = nil
		}
	}
}

// add adds a message behind the others; a queued one waits.
func (c *Conversation) add(message *pb.SessionMessage) {
	id := message.GetMessageId()
	if c.held[id] == nil {
		c.order = append(c.order, id)
	}
	c.held[id] = newHeldMessage(message)
	c.messages = nil
	if message.GetStatus() == pb.MessageStatus_MESSAGE_STATUS_QUEUED && !c.waits()[id] {
		entry := &pb.QueueEntry{MessageId: id, TurnId: message.GetTurnId()}
		c.waiting = append(slices.Clone(c.waiting), entry)
	}
}

// put replaces a message with all its parts, or adds it.
func (c *Conversation) put(message *pb.SessionMessage) {
	if c.held[message.GetMessageId()] == nil {
		c.order = append(c.order, message.GetMessageId())
	}
	c.held[message.GetMessageId()] = newHeldMessage(message)
	c.messages = nil
}

func (c *Conversation) remove(messageID string) {
	if c.held[messageID] == nil {
		return
	}
	delete(c.held, messageID)
	c.order = slices.DeleteFunc(c.order, func(id string) bool { return id == messageID })
	c.messages = nil
}

// leftOut returns the entries of the messages that wait although the queue of a snapshot leaves them out, because their
// status is QUEUED: the event that ends their wait follows.
func (c *Conversation) leftOut(queue []*pb.QueueEntry) []*pb.QueueEntry {
	return slices.DeleteFunc(slices.Clone(c.waiting), func(entry *pb.QueueEntry) bool {
		id := entry.GetMessageId()
		isIt := func(other *pb.QueueEntry) bool { return other.GetMessageId() == id }
		held := c.held[id]
		return held == nil || held.info.GetStatus() != pb.MessageStatus_MESSAGE_STATUS_QUEUED || slices.ContainsFunc(queue, isIt)
	})
}

func (c *Conversation) stopWaiting(messageID string) {
	isIt := func(entry *pb.QueueEntry) bool { return entry.GetMessageId() == messageID }
	if slices.ContainsFunc(c.waiting, isIt) {
		c.waiting = slices.DeleteFunc(slices.Clone(c.waiting), isIt)
		c.messages = nil
	}
}

// begin makes a message part of the conversation: it is complete, waits no more, and comes behind those that do not wait.
func (c *Conversation) begin(messageID string) {
	c.stopWaiting(messageID)
	message := c.held[messageID]
	if message == nil {
		return
	}
	c.remove(messageID)
	info := shallow(message.show())
	if info.GetStatus() == pb.MessageStatus_MESSAGE_STATUS_QUEUED {
		info.PreviousMessageId = c.lastMessage()
	}
	info.Status = pb.MessageStatus_MESSAGE_STATUS_COMPLETE
	c.put(info)
}

// lastMessage returns the id of the last message that does not wait, "" for none.
func (c *Conversation) lastMessage() string {
	waits := c.waits()
	for _, id := range slices.Backward(c.order) {
		if !waits[id] {
			return id
		}
	}
	return ""
}

// cut drops the messages behind the last one that stays, apart from those that wait.
func (c *Conversation) cut(change *pb.ConversationChanged) {
	waits := c.waits()
	kept := change.GetKeptThroughMessageId()
	isHeld := change.KeptThroughMessageId != nil && c.held[kept] != nil && !waits[kept]
	drops := !isHeld
	c.order = slices.DeleteFunc(c.order, func(id string) bool {
		if drops && !waits[id] {
			delete(c.held, id)
			return true
		}
		drops = drops || id == kept
		return false
	})
	c.messages = nil
	c.reread = c.reread || change.GetReread()
}

func (c *Conversation) setSession(session *pb.SessionInfo) {
	c.session, c.status = session, session.GetStatus()
}

// setTitle gives the session the title that a message brought; "" keeps the one that it has.
func (c *Conversation) setTitle(title string) {
	if title != "" && c.session != nil {
		c.session = shallow(c.session)
		c.session.Title, c.session.TitleFromMessage = title, true
	}
}

func (c *Conversation) ask(permission *pb.PermissionRequest) {
	isIt := func(open *pb.PermissionRequest) bool { return open.GetId() == permission.GetId() }
	if !slices.ContainsFunc(c.permissions, isIt) {
		c.permissions = append(slices.Clone(c.permissions), permission)
	}
}

func (c *Conversation) question(question *pb.Question) {
	isIt := func(open *pb.Question) bool { return open.GetQuestionId() == question.GetQuestionId() }
	if !slices.ContainsFunc(c.questions, isIt) {
		c.questions = append(slices.Clone(c.questions), question)
	}
}

// drop forgets all but the place.
func (c *Conversation) drop() {
	c.held, c.order, c.messages = map[string]*heldMessage{}, nil, nil
	c.waiting, c.revision = nil, 0
	c.session, c.status = nil, pb.SessionStatus_SESSION_STATUS_UNSPECIFIED
	c.permissions, c.questions, c.notice = nil, nil, nil
}

func (c *Conversation) heldPart(messageID string, index uint32) *heldPart {
	if message := c.held[messageID]; message != nil {
		return message.part(index)
	}
	return nil
}

// changed makes a message be shown anew.
func (c *Conversation) changed(messageID string) {
	c.held[messageID].shown = nil
	c.messages = nil
}
