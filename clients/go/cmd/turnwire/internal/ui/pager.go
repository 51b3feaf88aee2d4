package ui

import (
	"context"
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"

	pb "github.com/turnwire/turnwire/clients/go/opencode"

	"github.com/turnwire/turnwire/clients/go/cmd/turnwire/internal/remote"
	"github.com/turnwire/turnwire/clients/go/cmd/turnwire/internal/text"
	"github.com/turnwire/turnwire/clients/go/cmd/turnwire/internal/transcript"
)

// maxRequest is how much of a request to a model is shown.
const maxRequest = 256 << 10

// pager shows lines that are longer than the window.
type pager struct {
	title  string
	spans  [][]text.Span // of each line, clean
	offset int
	width  int
	lines  []string
	height int
}

func (p *pager) add(words string, style text.Style) {
	for line := range strings.SplitSeq(text.Clean(words), "\n") {
		p.spans = append(p.spans, []text.Span{{Text: line, Style: style}})
	}
}

func (p *pager) fact(name, value string) {
	p.spans = append(p.spans, []text.Span{{Text: name + ": ", Style: text.Bold}, {Text: text.Line(value), Style: text.None}})
}

func (p *pager) key(_ *App, key tea.KeyPressMsg) (tea.Cmd, bool) {
	page := max(p.height-3, 1)
	switch key.String() {
	case "esc", "q", "ctrl+c", "enter", "f1", "ctrl+t", "ctrl+r", "f4", "f5":
		return nil, false
	case "up", "k":
		p.offset--
	case "down", "j":
		p.offset++
	case "pgup", "b":
		p.offset -= page
	case "pgdown", "space":
		p.offset += page
	case "home", "g":
		p.offset = 0
	case "end", "G":
		p.offset = len(p.lines)
	}
	return nil, true
}

func (p *pager) paste(string) {}

func (p *pager) view(width, height int) []string {
	if p.width != width {
		p.width, p.lines = width, nil
		for _, spans := range p.spans {
			p.lines = append(p.lines, text.WrapSpans(spans, width)...)
		}
	}
	p.height = height
	rows := max(height-1, 1)
	p.offset = max(min(p.offset, len(p.lines)-rows), 0)
	end := min(p.offset+rows, len(p.lines))
	place := "esc closes"
	if len(p.lines) > rows {
		place = fmt.Sprintf("%d–%d of %d · esc closes", p.offset+1, end, len(p.lines))
	}
	head := keepEnd(text.Bold.And(text.Cyan).On(p.title), text.Faint.On(place), width)
	return append([]string{head}, p.lines[p.offset:end]...)
}

// newHelp returns the page about keys.
func newHelp() *pager {
	p := &pager{title: "Keys"}
	section := func(title string, rows ...string) {
		p.add("", text.None)
		p.add(title, text.Bold)
		for _, row := range rows {
			key, does, _ := strings.Cut(row, " = ")
			p.spans = append(p.spans, []text.Span{
				{Text: text.Fit("  "+key, 24) + " ", Style: text.Cyan}, {Text: does, Style: text.None},
			})
		}
	}
	section("Writing",
		"enter = sends; while an answer runs, the message waits",
		"ctrl+x = sends, ends the running answer and is answered next",
		"ctrl+s = sends into the running answer, before its next step",
		"alt+enter, ctrl+j = a new line; a pasted text keeps its lines",
		"ctrl+c = ends the running answer, else empties the input",
		"ctrl+d = leaves, when the input is empty; ctrl+q always",
	)
	section("Everywhere",
		"tab, shift+tab = to the next part of the screen; esc goes back to the input",
		"pgup, pgdown = scrolls; ctrl+up and ctrl+down by a line; ctrl+end follows",
		"ctrl+o = opens and folds reasoning, calls and numbers",
		"ctrl+y = answers what is asked",
		"ctrl+p = chooses a message; so does up in an empty input",
		"ctrl+g = changes the messages that wait",
		"ctrl+l = sessions; ctrl+n a new one",
		"ctrl+f = searches messages",
		"ctrl+t = what the model is sent; ctrl+r what it cost",
	)
	section("On a message",
		"up, down = the one before or behind",
		"enter = opens and folds it",
		"r = answers again",
		"e = changes a question and asks again",
		"left, right = the alternative before or behind",
	)
	section("On a message that waits",
		"e = changes it; d takes it out",
		"shift+up, shift+down = moves it (K and J too)",
		"s = lets it steer the running answer; x ends that for it",
	)
	section("On sessions",
		"enter = opens; n begins a new one",
		"/ = finds by title; r renames",
		"a = archives, or takes out; A shows the archive",
		"d = deletes with all its messages, after a question",
	)
	return p
}

// explain shows what a model would be sent, with what is in the input.
func (a *App) explain() tea.Cmd {
	if a.chat.sessionID == "" {
		return a.note("no session is open", text.Faint)
	}
	session, draft := a.chat.sessionID, ""
	if !a.input.empty() {
		draft = a.input.text()
	}
	var answer *pb.ExplainContextResponse
	return a.do(
		func(ctx context.Context) (err error) {
			answer, err = a.server.Explain(ctx, session, draft)
			return err
		},
		func() tea.Cmd {
			a.overlay = explained(answer)
			return nil
		}, nil)
}

func explained(answer *pb.ExplainContextResponse) *pager {
	p := &pager{title: "What the model is sent"}
	p.fact("Model", answer.GetModel().GetProviderId()+"/"+answer.GetModel().GetModelId()+" ("+answer.GetApi()+")")
	size := fmt.Sprintf("about %d tokens", answer.GetEstimatedTokens())
	if window := answer.GetContextWindowTokens(); window > 0 {
		size += fmt.Sprintf(" of %d", window)
	}
	if answer.GetWouldCompact() {
		size += "; older messages would be summarised first"
	}
	p.fact("Size", size)
	p.fact("Left out or changed", plural(len(answer.GetRepairs()), "thing", "things"))
	for _, repair := range answer.GetRepairs() {
		p.add("  "+text.Line(repair.GetReason()+": "+repair.GetExplanation()), text.Yellow)
	}
	p.add("", text.None)
	p.add(indentJSON(cutText(answer.GetRequestJson(), maxRequest)), text.None)
	return p
}

// usage shows what was used.
func (a *App) usage() tea.Cmd {
	session := a.chat.sessionID
	var answer *remote.Usage
	return a.do(
		func(ctx context.Context) (err error) {
			answer, err = a.server.Usage(ctx, session)
			return err
		},
		func() tea.Cmd {
			a.overlay = used(answer)
			return nil
		}, nil)
}

func used(usage *remote.Usage) *pager {
	p := &pager{title: "What it cost"}
	if usage.Session != nil {
		p.fact("This session", amount(usage.Session.GetUsage(), usage.Session.CostPicoUsd))
	}
	p.add("", text.None)
	p.add("This month, by model", text.Bold)
	for _, row := range usage.Month {
		told := amount(row.GetUsage(), row.CostPicoUsd) + fmt.Sprintf(", %d steps", row.GetSteps())
		if unknown := row.GetStepsWithoutPrice(); unknown > 0 {
			told += fmt.Sprintf(" (%d without a known price)", unknown)
		}
		p.fact("  "+text.Line(row.GetProviderId()+"/"+row.GetModelId()), told)
	}
	if len(usage.Month) == 0 {
		p.add("  nothing", text.Faint)
	}
	p.add("", text.None)
	p.add("Quotas", text.Bold)
	for _, quota := range usage.Quotas {
		limit := "no limit"
		if quota.GetLimit() > 0 {
			limit = fmt.Sprintf("of %d", quota.GetLimit())
		}
		p.fact("  "+text.Line(quota.GetName()), fmt.Sprintf("%d, %s", quota.GetUsed(), limit))
	}
	return p
}

// amount tells tokens and money; what is not known is not told as 0.
func amount(usage *pb.TokenUsage, pico *int64) string {
	tokens := transcript.Tokens(usage)
	if tokens == "" {
		tokens = "no tokens reported"
	}
	if pico == nil {
		return tokens + ", price unknown"
	}
	return tokens + ", " + transcript.Money(*pico)
}
