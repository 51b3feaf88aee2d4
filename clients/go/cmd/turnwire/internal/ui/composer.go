package ui

import (
	"strings"

	"charm.land/bubbles/v2/key"
	"charm.land/bubbles/v2/textarea"
	"charm.land/bubbles/v2/textinput"
	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
)

const (
	// maxPaste is the most bytes that are pasted at once: the input lays all of its text out for each key.
	maxPaste = 64 << 10
	// maxInputLines is the most lines of the input on the screen.
	maxInputLines = 8
)

// purpose is what Enter does with the input.
type purpose int

const (
	toSend purpose = iota
	toEditQueued
	toAskAgain
)

// composer is the input of several lines.
type composer struct {
	area    textarea.Model
	purpose purpose
	about   string // the message that is edited
	draft   string // what was being written before
}

func newComposer() composer {
	area := textarea.New()
	area.Prompt, area.ShowLineNumbers = "> ", false
	area.Placeholder = ""
	area.DynamicHeight, area.MinHeight, area.MaxHeight, area.MaxContentHeight = true, 1, maxInputLines, 10000
	area.MaxWidth = 0
	area.SetVirtualCursor(false)
	styles := area.Styles()
	for _, state := range []*textarea.StyleState{&styles.Focused, &styles.Blurred} {
		plain := lipgloss.NewStyle()
		state.Base, state.Text, state.CursorLine, state.EndOfBuffer = plain, plain, plain, plain
		state.Prompt = plain.Foreground(lipgloss.Cyan)
		state.Placeholder = plain.Faint(true)
	}
	styles.Blurred.Prompt = lipgloss.NewStyle().Faint(true)
	area.SetStyles(styles)
	keys := textarea.DefaultKeyMap()
	keys.InsertNewline = key.NewBinding(key.WithKeys("alt+enter", "shift+enter", "ctrl+j"))
	// Keys that the program needs for itself; arrows and home do the same.
	keys.CharacterForward = key.NewBinding(key.WithKeys("right"))
	keys.LineNext = key.NewBinding(key.WithKeys("down"))
	keys.LinePrevious = key.NewBinding(key.WithKeys("up"))
	keys.TransposeCharacterBackward = key.NewBinding()
	keys.Paste = key.NewBinding() // the terminal pastes; this one would read the clipboard of the machine
	keys.SelectAll, keys.CopySelection = key.NewBinding(), key.NewBinding()
	keys.PageUp, keys.PageDown = key.NewBinding(), key.NewBinding()
	area.KeyMap = keys
	return composer{area: area}
}

func (c *composer) focus() tea.Cmd { return c.area.Focus() }

func (c *composer) update(message tea.Msg) tea.Cmd {
	var cmd tea.Cmd
	c.area, cmd = c.area.Update(message)
	return cmd
}

// text returns what was written.
func (c *composer) text() string { return c.area.Value() }

// empty says whether nothing but white space was written.
func (c *composer) empty() bool { return strings.TrimSpace(c.area.Value()) == "" }

// put replaces what was written.
func (c *composer) put(text string) {
	c.area.SetValue(text)
	c.area.MoveToEnd()
}

// edit begins to edit a message. What was being written comes back afterwards.
func (c *composer) edit(purpose purpose, messageID, text string) {
	if c.purpose == toSend {
		c.draft = c.area.Value()
	}
	c.purpose, c.about = purpose, messageID
	c.put(text)
}

// leaveMode goes back to writing a message.
func (c *composer) leaveMode() {
	if c.purpose == toSend {
		return
	}
	c.purpose, c.about = toSend, ""
	c.put(c.draft)
	c.draft = ""
}

// lineInput is an input of one line, for titles, filters and forms. It takes keys only while it is active.
type lineInput struct {
	input textinput.Model
	on    bool
}

func newLineInput(prompt, value string) lineInput {
	input := textinput.New()
	input.Prompt = prompt
	input.SetVirtualCursor(true)
	input.CharLimit = 8192
	keys := textinput.DefaultKeyMap()
	keys.Paste = key.NewBinding()
	input.KeyMap = keys
	styles := input.Styles()
	styles.Focused.Prompt, styles.Focused.Text = lipgloss.NewStyle().Foreground(lipgloss.Cyan), lipgloss.NewStyle()
	styles.Cursor.Blink = false
	input.SetStyles(styles)
	input.SetValue(value)
	input.CursorEnd()
	input.Focus()
	return lineInput{input: input, on: true}
}

func (l *lineInput) active() bool { return l.on }

func (l *lineInput) key(key tea.KeyPressMsg) {
	l.input, _ = l.input.Update(key)
}

func (l *lineInput) paste(text string) {
	l.input, _ = l.input.Update(tea.PasteMsg{Content: strings.ReplaceAll(text, "\n", " ")})
}

func (l *lineInput) value() string { return l.input.Value() }

func (l *lineInput) view(width int) string {
	l.input.SetWidth(max(width-len(l.input.Prompt)-1, 1))
	return l.input.View()
}
