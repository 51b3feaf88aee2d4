package transcript

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"

	pb "github.com/turnwire/turnwire/clients/go/opencode"

	"github.com/turnwire/turnwire/clients/go/cmd/turnwire/internal/text"
)

const (
	// foldedLines is how many lines of an output and of a log are shown of a folded call.
	foldedLines = 4
	// openLines is how many are shown of an open one.
	openLines = 400
)

// call lays out a tool call: name and state, arguments, log, result. The model is writing the answer that has it, or has
// written it.
func call(state *pb.ToolCallState, columns int, open, writing bool) []string {
	word, style := callState(state, writing)
	name := text.Line(state.GetName())
	head := []text.Span{{Text: "⚙ " + name, Style: text.Magenta.And(text.Bold)}, {Text: " " + word, Style: style}}
	if !open {
		if arguments := text.Line(shorten(state.GetInputJson(), 300)); arguments != "" && arguments != "{}" {
			head = append(head, text.Span{Text: " " + arguments, Style: text.Faint})
		}
	}
	lines := []string{text.Cut(text.Joined(head), columns)}
	if open && state.GetInputJson() != "" {
		lines = append(lines, output(Arguments(state.GetInputJson()), columns, true, text.Cyan)...)
	}
	if logs := state.GetLogs(); len(logs) > 0 {
		lines = append(lines, lastLines(logs, columns, open)...)
	}
	if state.Output != nil {
		lines = append(lines, output(state.GetOutput(), columns, open, text.None)...)
	}
	if state.Error != nil {
		lines = append(lines, output(state.GetError(), columns, open, text.Red)...)
	}
	for _, ref := range state.GetFiles() {
		lines = append(lines, text.Cut("  "+text.Magenta.On(file(ref)), columns))
	}
	if ref := state.GetFullOutput(); ref != nil {
		lines = append(lines, text.Cut("  "+text.Faint.On("all of it: "+Bytes(ref.GetSizeBytes())), columns))
	}
	return lines
}

// callState says how far a call is.
func callState(state *pb.ToolCallState, writing bool) (string, text.Style) {
	switch status := state.GetStatus(); {
	case status == "pending" && state.PermissionId != nil:
		return "waits for you", text.Yellow
	case status == "pending" && state.GetLease() != nil:
		return "run by " + text.Line(state.GetLease().GetHolder()), text.Cyan
	case status == "pending" && state.StartedAt == nil && writing:
		return "is written", text.Faint
	case status == "pending" && state.StartedAt == nil: // of an appended answer
		return "waits for its result", text.Yellow
	case status == "pending":
		return "waits for the client that runs it", text.Yellow
	case status == "running":
		return "runs", text.Cyan
	case status == "success":
		return "✓" + took(state), text.Green
	case status == "error":
		return "✗" + took(state), text.Red
	default:
		return text.Line(status), text.Yellow
	}
}

// took tells how long a call ran, if it is known and long enough to matter.
func took(state *pb.ToolCallState) string {
	if state.StartedAt == nil || state.FinishedAt == nil {
		return ""
	}
	duration := time.Duration(state.GetFinishedAt()-state.GetStartedAt()) * time.Millisecond
	if duration < 100*time.Millisecond {
		return ""
	}
	return " " + duration.Round(100*time.Millisecond).String()
}

// output lays out what a tool wrote, indented: its beginning, unless the call is open.
func output(written string, columns int, open bool, style text.Style) []string {
	limit := foldedLines
	if open {
		limit = openLines
	}
	cut := shorten(written, limit*max(columns, 20)*4)
	source := strings.Split(strings.TrimRight(text.Clean(cut), "\n"), "\n")
	var lines []string
	for _, line := range source {
		for _, piece := range text.Hard(line, columns-2, style) {
			lines = append(lines, "  "+piece)
		}
		if len(lines) > limit {
			break
		}
	}
	if len(lines) <= limit && len(cut) == len(written) {
		return lines
	}
	return append(lines[:min(limit, len(lines))], text.Faint.On("  … "+Bytes(uint64(len(written)))+" in all"))
}

// lastLines lays out the end of a log.
func lastLines(logs []string, columns int, open bool) []string {
	limit := foldedLines
	if open {
		limit = openLines
	}
	var lines []string
	if hidden := len(logs) - limit; hidden > 0 {
		lines = append(lines, text.Faint.On(fmt.Sprintf("  … %d lines before", hidden)))
		logs = logs[hidden:]
	}
	for _, line := range logs {
		lines = append(lines, text.Cut("  "+text.Faint.On("│ "+text.Line(line)), columns))
	}
	return lines
}

// result lays out a result that is a message of its own: how it ended, as far as that is known, and the output.
func result(result *pb.ToolResultContent, columns int, open bool) []string {
	var words []string
	style, outcome := text.None, text.Faint
	if result.GetIsError() {
		words, style, outcome = append(words, "✗ failed"), text.Red, text.Red
	}
	if result.ExitCode != nil {
		words = append(words, fmt.Sprintf("exit code %d", result.GetExitCode()))
	}
	lines := output(result.GetOutput(), columns, open, style)
	if len(words) == 0 {
		return lines
	}
	return append([]string{text.Cut(outcome.On(strings.Join(words, ", ")), columns)}, lines...)
}

// Arguments returns the arguments of a call as a person reads them: a line for each field, texts as they are, with lines of
// their own when they have several. Deeper values are indented JSON; what is no JSON object stays as it is.
func Arguments(source string) string {
	if len(source) > 1<<20 {
		return source
	}
	decoder := json.NewDecoder(strings.NewReader(source))
	if begin, err := decoder.Token(); err != nil || begin != json.Delim('{') {
		return source
	}
	var fields []string
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return source
		}
		var value json.RawMessage
		if decoder.Decode(&value) != nil {
			return source
		}
		fields = append(fields, field(fmt.Sprint(name), value))
	}
	if end, err := decoder.Token(); err != nil || end != json.Delim('}') || decoder.More() {
		return source
	}
	return strings.Join(fields, "\n")
}

// field returns one argument. Its further lines are indented, so that none of them looks like another argument.
func field(name string, value json.RawMessage) string {
	var words string
	if json.Unmarshal(value, &words) != nil || words == "" { // no text
		var indented bytes.Buffer
		if json.Indent(&indented, value, "", "  ") != nil {
			return name + ": " + string(value)
		}
		words = indented.String()
	}
	name, words = strings.ReplaceAll(unsteered(name), "\n", " "), unsteered(words)
	if !strings.Contains(words, "\n") {
		return name + ": " + words
	}
	return name + ":\n  " + strings.ReplaceAll(strings.TrimRight(words, "\n"), "\n", "\n  ")
}

// unsteered shows control characters by their number: others leave them out or begin a line with them, and who allows a
// call has to see them.
func unsteered(s string) string {
	s = strings.ReplaceAll(s, "\r\n", "\n")
	if !strings.ContainsFunc(s, steers) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if steers(r) {
			fmt.Fprintf(&b, "⟨U+%04X⟩", r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func steers(r rune) bool {
	return unicode.IsControl(r) && r != '\n' && r != '\t' || r == '\u2028' || r == '\u2029'
}

// shorten returns the beginning of a text, cut between characters.
func shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && s[limit]&0xc0 == 0x80 {
		limit--
	}
	return s[:limit]
}
