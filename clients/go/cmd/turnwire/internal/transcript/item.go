package transcript

import (
	"fmt"
	"strings"

	pb "github.com/turnwire/turnwire/clients/go/opencode"

	"github.com/turnwire/turnwire/clients/go/cmd/turnwire/internal/markdown"
	"github.com/turnwire/turnwire/clients/go/cmd/turnwire/internal/text"
)

// maxStreamedReasoning is how much of reasoning is laid out while it streams: its end.
const maxStreamedReasoning = 16 << 10

// item is a message and how it is laid out. Its lines are made when they are needed and kept until the message, the columns
// or the folding changes.
type item struct {
	message *pb.SessionMessage
	open    bool // reasoning, tool calls and numbers are shown in full
	texts   map[uint32]*markdown.Document
	laidOut bool
	columns int
	lines   []string
}

// set replaces the message.
func (i *item) set(message *pb.SessionMessage) {
	if message != i.message {
		i.message, i.laidOut = message, false
	}
}

// fold shows or hides details.
func (i *item) fold(open bool) {
	if open != i.open {
		i.open, i.laidOut = open, false
	}
}

// forget drops the lines of an item that is far from what is shown. They are made again when they are needed.
func (i *item) forget() {
	i.lines, i.texts, i.laidOut = nil, nil, false
}

// layOut returns the lines: a heading, the parts, and an empty line. The slice must not be changed.
func (i *item) layOut(columns int) []string {
	if i.laidOut && i.columns == columns {
		return i.lines
	}
	lines := []string{i.heading(columns)}
	for _, part := range i.message.GetParts() {
		lines = append(lines, i.part(part, columns)...)
	}
	if failure := i.message.GetFailure(); failure != nil {
		told := "✗ " + text.Clean(failure.GetReason()+": "+failure.GetMessage())
		lines = append(lines, text.Wrap(told, columns, text.Red)...)
	}
	if i.open {
		lines = append(lines, numbers(i.message, columns)...)
	}
	i.lines, i.columns, i.laidOut = append(lines, ""), columns, true
	return i.lines
}

// heading says who wrote the message, when, and what is special about it.
func (i *item) heading(columns int) string {
	m := i.message
	name, style := speaker(m)
	spans := []text.Span{{Text: name, Style: style.And(text.Bold)}}
	add := func(word string, style text.Style) { spans = append(spans, text.Span{Text: " " + word, Style: style}) }
	if run := m.GetModelRun(); run != nil {
		add(text.Line(run.GetProviderId()+"/"+run.GetModelRequested()), text.Faint)
	}
	if m.GetCreateTime() != nil {
		add(m.GetCreateTime().AsTime().Local().Format("15:04"), text.Faint)
	}
	if n := m.GetAlternativeCount(); n > 1 {
		add(fmt.Sprintf("‹%d of %d›", m.GetAlternativeIndex()+1, n), text.Magenta)
	}
	switch m.GetStatus() {
	case pb.MessageStatus_MESSAGE_STATUS_STREAMING:
		add("writing…", text.Cyan)
	case pb.MessageStatus_MESSAGE_STATUS_INTERRUPTED:
		add(endWord(m, "interrupted"), text.Yellow)
	case pb.MessageStatus_MESSAGE_STATUS_FAILED:
		add("failed", text.Red)
	case pb.MessageStatus_MESSAGE_STATUS_QUEUED:
		add("waits", text.Yellow)
	default:
		if word := endWord(m, ""); word != "" {
			add(word, text.Yellow)
		}
	}
	return text.Cut(text.Joined(spans), columns)
}

// speaker names who wrote a message.
func speaker(m *pb.SessionMessage) (string, text.Style) {
	switch m.GetType() {
	case pb.MessageType_MESSAGE_TYPE_USER:
		if name := text.Line(m.GetSenderName()); name != "" {
			return name, text.Green
		}
		if name := text.Line(m.GetSender()); name != "" {
			return name, text.Green
		}
		return "You", text.Green
	case pb.MessageType_MESSAGE_TYPE_ASSISTANT:
		return "Assistant", text.Cyan
	case pb.MessageType_MESSAGE_TYPE_SYSTEM:
		if c := m.GetCompaction(); c != nil {
			return fmt.Sprintf("Summary of %d messages", c.GetMessageCount()), text.Blue
		}
		return "System", text.Blue
	case pb.MessageType_MESSAGE_TYPE_HOST:
		return "Note", text.Yellow
	case pb.MessageType_MESSAGE_TYPE_TOOL_RESULT:
		return "Tool result", text.Magenta
	default:
		return "Message", text.None
	}
}

// endWord tells an unusual end of an answer; otherwise it returns usual.
func endWord(m *pb.SessionMessage, usual string) string {
	switch m.GetFinishReason() {
	case pb.FinishReason_FINISH_REASON_ABORTED:
		return "aborted"
	case pb.FinishReason_FINISH_REASON_LENGTH:
		return "cut at the output limit"
	case pb.FinishReason_FINISH_REASON_REFUSAL:
		return "refused"
	case pb.FinishReason_FINISH_REASON_CONTENT_FILTER:
		return "stopped by a content filter"
	case pb.FinishReason_FINISH_REASON_CONTEXT_FULL:
		return "context full"
	case pb.FinishReason_FINISH_REASON_BUDGET:
		return "budget used up"
	case pb.FinishReason_FINISH_REASON_MAX_STEPS:
		return "step limit reached"
	default:
		return usual
	}
}

// part lays out one part.
func (i *item) part(part *pb.Part, columns int) []string {
	switch content := part.GetContent().(type) {
	case *pb.Part_Text:
		if i.message.GetType() == pb.MessageType_MESSAGE_TYPE_USER { // as it was typed, line by line
			return text.Wrap(strings.Trim(text.Clean(content.Text.GetText()), "\n"), columns, text.None)
		}
		return i.document(part.GetIndex(), content.Text.GetText()).Lines(columns)
	case *pb.Part_Reasoning:
		return i.reasoning(part, content.Reasoning.GetText(), columns)
	case *pb.Part_ToolUse:
		return call(content.ToolUse, columns, i.open, i.message.GetStatus() == pb.MessageStatus_MESSAGE_STATUS_STREAMING)
	case *pb.Part_ToolResult:
		return result(content.ToolResult, columns, i.open)
	case *pb.Part_Refusal:
		return text.Wrap(text.Clean("Refused: "+content.Refusal.GetText()), columns, text.Red)
	case *pb.Part_File:
		return []string{text.Cut(text.Magenta.On(file(content.File)), columns)}
	case *pb.Part_Provider:
		return []string{text.Cut(text.Faint.On("["+text.Line(content.Provider.GetKind())+"]"), columns)}
	default:
		return []string{text.Cut(text.Faint.On("[something that this program does not know yet]"), columns)}
	}
}

// document returns the document of a part, which keeps what was laid out before.
func (i *item) document(index uint32, source string) *markdown.Document {
	if i.texts == nil {
		i.texts = map[uint32]*markdown.Document{}
	}
	if i.texts[index] == nil {
		i.texts[index] = &markdown.Document{}
	}
	i.texts[index].SetText(source)
	return i.texts[index]
}

// reasoning is one line unless the message is open.
func (i *item) reasoning(part *pb.Part, source string, columns int) []string {
	if source == "" {
		return nil
	}
	streams := part.GetStatus() == pb.PartStatus_PART_STATUS_STREAMING
	if !i.open {
		shown := source[:min(len(source), 400)]
		if streams {
			shown = source[max(0, len(source)-400):]
			shown = shown[strings.LastIndexByte(strings.TrimRight(shown, "\n"), '\n')+1:]
		}
		return []string{text.Cut(text.Faint.And(text.Italic).On("▸ Reasoning: "+text.Line(shown)), columns)}
	}
	if streams && len(source) > maxStreamedReasoning {
		source = "…" + source[len(source)-maxStreamedReasoning:]
	}
	lines := []string{text.Faint.And(text.Italic).On("▾ Reasoning")}
	return append(lines, text.Wrap(strings.TrimRight(text.Clean(source), "\n"), columns, text.Faint)...)
}

// file describes a file.
func file(ref *pb.FileRef) string {
	name := text.Line(ref.GetFilename())
	if name == "" {
		name = "file"
	}
	unseen := ""
	if ref.GetForm() == pb.FileForm_FILE_FORM_NAME_ONLY {
		unseen = ", models see its name alone"
	}
	return fmt.Sprintf("▣ %s (%s, %s%s)", name, text.Line(ref.GetMime()), Bytes(ref.GetSizeBytes()), unseen)
}

// Bytes writes a size for people.
func Bytes(n uint64) string {
	switch {
	case n < 1000:
		return fmt.Sprintf("%d B", n)
	case n < 1000_000:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	default:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	}
}

// Money writes pico-USD for people. Nothing below 9.2 million USD is lost, only digits behind the fourth that counts.
func Money(pico int64) string {
	usd := float64(pico) / 1e12
	if usd != 0 && usd < 0.01 {
		return fmt.Sprintf("$%.6f", usd)
	}
	return fmt.Sprintf("$%.4f", usd)
}

// Tokens writes what was used for people; "" when nothing is known.
func Tokens(usage *pb.TokenUsage) string {
	if usage == nil {
		return ""
	}
	in := usage.GetInputTokens() + usage.GetCacheReadTokens() + usage.GetCacheWriteTokens()
	told := fmt.Sprintf("%d in, %d out", in, usage.GetOutputTokens()+usage.GetReasoningTokens())
	if cached := usage.GetCacheReadTokens(); cached > 0 {
		told += fmt.Sprintf(", %d of them cached", cached)
	}
	return told
}

// numbers tells ids, tokens and money of a message.
func numbers(m *pb.SessionMessage, columns int) []string {
	told := []string{m.GetMessageId()}
	if tokens := Tokens(m.GetUsage()); tokens != "" {
		told = append(told, tokens)
	}
	if m.CostPicoUsd != nil {
		told = append(told, Money(m.GetCostPicoUsd()))
	}
	if sent := m.GetSentContext(); sent != nil {
		told = append(told, fmt.Sprintf("%d messages sent, about %d tokens", sent.GetMessageCount(), sent.GetEstimatedTokens()))
	}
	return text.Wrap(text.Line(strings.Join(told, " · ")), columns, text.Faint)
}
