package turnwire

import (
	"slices"
	"strings"

	pb "github.com/turnwire/turnwire/clients/go/opencode"
)

// heldMessage is a message while events change it. What was shown of it is never changed.
type heldMessage struct {
	info  *pb.SessionMessage // as it came last; its parts count only until they are taken apart
	parts []*heldPart        // by index; nil until an event is about one of them
	apart bool               // parts count
	shown *pb.SessionMessage // nil when something changed
}

func newHeldMessage(message *pb.SessionMessage) *heldMessage {
	return &heldMessage{info: message, shown: message}
}

// show returns the message as it is now.
func (m *heldMessage) show() *pb.SessionMessage {
	if m.shown == nil {
		m.shown = shallow(m.info)
		m.shown.Parts = make([]*pb.Part, len(m.parts))
		for i, part := range m.parts {
			m.shown.Parts[i] = part.show()
		}
	}
	return m.shown
}

// takeApart makes parts count.
func (m *heldMessage) takeApart() {
	if m.apart {
		return
	}
	m.apart = true
	m.parts = make([]*heldPart, len(m.info.GetParts()))
	for i, part := range m.info.GetParts() {
		m.parts[i] = newHeldPart(part)
	}
}

// part returns the part with an index, nil for none.
func (m *heldMessage) part(index uint32) *heldPart {
	m.takeApart()
	if int(index) < len(m.parts) && m.parts[index].part.GetIndex() == index { // as long as none is missing
		return m.parts[index]
	}
	for _, part := range m.parts {
		if part.part.GetIndex() == index {
			return part
		}
	}
	return nil
}

// put replaces the part with this index, or adds it in its place.
func (m *heldMessage) put(part *pb.Part) {
	m.takeApart()
	at, found := slices.BinarySearchFunc(m.parts, part.GetIndex(), func(held *heldPart, index uint32) int {
		return int(held.part.GetIndex()) - int(index)
	})
	if found {
		m.parts[at] = newHeldPart(part)
	} else {
		m.parts = slices.Insert(m.parts, at, newHeldPart(part))
	}
	m.shown = nil
}

// finish takes the message as it ended, and keeps the parts that ended too.
func (m *heldMessage) finish(info *pb.SessionMessage) {
	m.takeApart()
	m.parts = slices.DeleteFunc(m.parts, func(part *heldPart) bool {
		return part.part.GetStatus() == pb.PartStatus_PART_STATUS_STREAMING
	})
	m.info, m.shown = info, nil
}

// heldPart is a part while deltas add to it.
type heldPart struct {
	part  *pb.Part         // as it came last
	bytes uint32           // of text that are held; the contract's n
	grown *strings.Builder // the text with all deltas; nil before the first one
	lines []string         // log lines behind those of part
	shown *pb.Part         // nil when something changed
}

func newHeldPart(part *pb.Part) *heldPart {
	return &heldPart{part: part, bytes: part.GetContentBytes(), shown: part}
}

// grow adds what is new of a delta; false when nothing is.
func (p *heldPart) grow(delta *pb.PartDelta) bool {
	if delta.GetOffset() > p.bytes || delta.GetEndOffset() <= p.bytes {
		return false
	}
	known := int(p.bytes - delta.GetOffset())
	if known > len(delta.GetText()) || !hasText(p.part) {
		return false
	}
	if p.grown == nil {
		p.grown = &strings.Builder{}
		p.grown.WriteString(textOf(p.part))
	}
	p.grown.WriteString(delta.GetText()[known:])
	p.bytes, p.shown = delta.GetEndOffset(), nil
	return true
}

// log adds a line to the log of a call; false when it is known, or one before it is missing.
func (p *heldPart) log(line *pb.ToolLog) bool {
	if p.part.GetToolUse() == nil || int(line.GetLineIndex()) != len(p.part.GetToolUse().GetLogs())+len(p.lines) {
		return false
	}
	p.lines, p.shown = append(p.lines, line.GetText()), nil
	return true
}

// setCall replaces the call.
func (p *heldPart) setCall(state *pb.ToolCallState) {
	p.part = shallow(p.part)
	p.part.Content = &pb.Part_ToolUse{ToolUse: state}
	p.part.ContentBytes = p.bytes
	p.grown, p.lines, p.shown = nil, nil, p.part
}

// show returns the part as it is now. The text is that of the builder, which only grows behind it.
func (p *heldPart) show() *pb.Part {
	if p.shown != nil {
		return p.shown
	}
	p.shown = shallow(p.part)
	p.shown.ContentBytes = p.bytes
	text := textOf(p.part)
	if p.grown != nil {
		text = p.grown.String()
	}
	switch content := p.part.GetContent().(type) {
	case *pb.Part_Text:
		grown := shallow(content.Text)
		grown.Text = text
		p.shown.Content = &pb.Part_Text{Text: grown}
	case *pb.Part_Reasoning:
		grown := shallow(content.Reasoning)
		grown.Text = text
		p.shown.Content = &pb.Part_Reasoning{Reasoning: grown}
	case *pb.Part_Refusal:
		grown := shallow(content.Refusal)
		grown.Text = text
		p.shown.Content = &pb.Part_Refusal{Refusal: grown}
	case *pb.Part_ToolUse:
		grown := shallow(content.ToolUse)
		grown.InputJson = text
		grown.Logs = append(slices.Clip(grown.GetLogs()), p.lines...)
		p.shown.Content = &pb.Part_ToolUse{ToolUse: grown}
	}
	return p.shown
}

// hasText reports whether deltas can add to a part.
func hasText(part *pb.Part) bool {
	switch part.GetContent().(type) {
	case *pb.Part_Text, *pb.Part_Reasoning, *pb.Part_Refusal, *pb.Part_ToolUse:
		return true
	default:
		return false
	}
}

// textOf returns what content_bytes counts: the text, of a call the arguments.
func textOf(part *pb.Part) string {
	switch content := part.GetContent().(type) {
	case *pb.Part_Text:
		return content.Text.GetText()
	case *pb.Part_Reasoning:
		return content.Reasoning.GetText()
	case *pb.Part_Refusal:
		return content.Refusal.GetText()
	case *pb.Part_ToolUse:
		return content.ToolUse.GetInputJson()
	default:
		return ""
	}
}
