package ui

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/turnwire/turnwire/clients/go/cmd/turnwire/internal/text"
)

// View draws the screen.
func (a *App) View() tea.View {
	began := time.Now()
	var view tea.View
	lines, cursor := a.draw()
	view.SetContent(strings.Join(lines, "\n"))
	view.AltScreen = true
	view.Cursor = cursor
	a.drawing = time.Since(began)
	return view
}

// draw returns the lines of the screen and where the cursor is; nil where no text is written.
func (a *App) draw() ([]string, *tea.Cursor) {
	width, height := max(a.width, 1), max(a.height, 1)
	wide := width >= wideColumns
	listAlone := !wide && a.region == onSessions && a.overlay == nil
	chatWidth, left := width, 0
	if wide {
		left = listColumns + 3
		chatWidth = width - left
	}
	header, footer := 1, 1
	if height < 8 {
		footer = 0
	}
	if height < 5 {
		header = 0
	}
	body := max(height-header-footer, 1)
	var chatLines []string
	var cursor *tea.Cursor
	switch {
	case listAlone:
		chatLines = a.sessions.view(width, body, a.chat.sessionID, true)
	case a.overlay != nil:
		chatLines = a.overlay.view(chatWidth, body)
	default:
		chatLines, cursor = a.drawChat(chatWidth, body)
	}
	chatLines = fill(chatLines, chatWidth, body)
	if wide {
		list := fill(a.sessions.view(listColumns, body, a.chat.sessionID, a.region == onSessions && a.overlay == nil), listColumns, body)
		for i := range chatLines {
			chatLines[i] = list[i] + text.Faint.On(" │ ") + chatLines[i]
		}
	}
	var lines []string
	if header > 0 {
		lines = append(lines, a.header(width))
	}
	lines = append(lines, chatLines...)
	if footer > 0 {
		lines = append(lines, text.Fit(a.footer(width), width))
	}
	if cursor != nil {
		cursor.X += left
		cursor.Y += header
	}
	return lines[:min(len(lines), height)], cursor
}

// drawChat returns conversation, what is asked, what waits, and the input.
func (a *App) drawChat(width, height int) ([]string, *tea.Cursor) {
	a.input.area.SetWidth(max(width, 4))
	a.input.area.MaxHeight = max(min(maxInputLines, height/3), 1)
	input := strings.Split(a.input.area.View(), "\n")
	input = input[:min(len(input), height)]
	rest := height - len(input)
	asked := a.asking.view(width, min(rest, max(height/2, 3)), a.region == onAsking)
	rest -= len(asked)
	queue := a.queueLines(width, min(rest/2, 10))
	rest -= len(queue)
	var status []string
	if rest > 1 {
		status = []string{text.Fit(a.status(width), width)}
		rest--
	}
	a.chat.list.Resize(width, rest)
	lines := a.chat.list.View()
	if a.chat.list.Len() == 0 && rest > 2 {
		lines = a.empty(width)
	}
	lines = fill(lines, width, rest)
	lines = append(lines, status...)
	lines = append(lines, queue...)
	lines = append(lines, asked...)
	top := len(lines)
	lines = append(lines, input...)
	if a.region != onInput {
		return lines, nil
	}
	cursor := a.input.area.Cursor()
	if cursor != nil {
		cursor.Y += top
	}
	return lines, cursor
}

// empty is shown in place of a conversation that has nothing yet.
func (a *App) empty(width int) []string {
	if a.chat.sessionID != "" && a.chat.conversation == nil {
		return nil
	}
	return text.Wrap("Write a message below and press enter. f1 lists the keys.", width, text.Faint)
}

// header says what is open and whether the server can be reached.
func (a *App) header(width int) string {
	state := text.Green.On("online")
	switch {
	case a.chat.ended != nil:
		state = text.Red.And(text.Bold).On("not followed: ") + text.Red.On(text.Line(describe(a.chat.ended)))
	case a.chat.lost != nil:
		state = text.Red.And(text.Bold).On("offline, connecting again: ") + text.Red.On(text.Line(describe(a.chat.lost)))
	case !a.online:
		state = text.Red.And(text.Bold).On("offline, connecting again")
	}
	end := text.Cut(state, max(width*2/3, 10)) + " " + text.Faint.On(text.Line(a.address))
	if text.Width(end) > width/2 {
		end = text.Cut(state, max(width/2, 10))
	}
	return keepEnd(text.Bold.On("Turnwire ")+text.Bold.And(text.Cyan).On(a.chat.title()), end, width)
}

// status is the line above the input: a note, or what goes on.
func (a *App) status(width int) string {
	var line string
	switch {
	case a.noted != "":
		line = a.notedAs.On(a.noted)
	case a.input.purpose == toEditQueued:
		line = text.Yellow.On("changing a message that waits · enter stores it · esc leaves it")
	case a.input.purpose == toAskAgain:
		line = text.Yellow.On("asking again · enter sends · esc leaves it")
	case a.asking.open() && len(a.chat.outbox) == 0:
		line = text.Yellow.On("waits for you")
	case a.chat.activity() != "":
		line = text.Cyan.On(a.chat.activity())
	default:
		line = text.Faint.On(a.chat.lastCost())
	}
	if !a.chat.list.Following() {
		return keepEnd(line, text.Faint.On(fmt.Sprintf("%d %% · ctrl+end: to the end", a.chat.list.Position())), width)
	}
	return line
}

// footer says which keys do something now.
func (a *App) footer(width int) string {
	hints := []string{"f1 keys", "tab", "ctrl+l sessions", "ctrl+n new", "ctrl+f search", "ctrl+t sent", "ctrl+r cost", "ctrl+q leave"}
	switch {
	case a.overlay != nil:
		hints = []string{"esc closes"}
	case a.region == onSessions:
		hints = []string{"enter opens", "n new", "/ find", "r rename", "a archive", "d delete", "A archived ones", "esc back"}
	case a.region == onMessages:
		hints = []string{"↑↓ choose", "enter folds", "r answer again", "e ask again", "←→ alternatives", "esc back"}
	case a.region == onQueue:
		hints = []string{"↑↓ choose", "e change", "d take out", "shift+↑↓ move", "s steer", "x interrupt", "esc back"}
	case a.region == onAsking:
		hints = []string{"esc later"}
	case a.chat.runs():
		hints = append([]string{"enter waits", "ctrl+x interrupts", "ctrl+s steers", "ctrl+c ends"}, hints...)
	}
	line := ""
	for _, hint := range hints {
		next := hint
		if line != "" {
			next = line + " · " + hint
		}
		if text.Width(next) > width {
			break
		}
		line = next
	}
	return text.Faint.On(line)
}

// fill returns exactly so many lines of exactly so many columns.
func fill(lines []string, width, height int) []string {
	filled := make([]string, height)
	for i := range filled {
		line := ""
		if i < len(lines) {
			line = lines[i]
		}
		filled[i] = text.Fit(line, width)
	}
	return filled
}
