package text

import "strings"

// Style is the parameters of one SGR sequence, such as "1;36"; "" is no style. Only the sixteen colours of the terminal's
// own palette are used, so a person's theme decides how they look. NO_COLOR is obeyed where the screen is written.
type Style string

// The styles of the program.
const (
	None      Style = ""
	Bold      Style = "1"
	Faint     Style = "2"
	Italic    Style = "3"
	Underline Style = "4"
	Reverse   Style = "7"
	Struck    Style = "9"
	Red       Style = "31"
	Green     Style = "32"
	Yellow    Style = "33"
	Blue      Style = "34"
	Magenta   Style = "35"
	Cyan      Style = "36"
)

// And returns both styles together.
func (s Style) And(other Style) Style {
	switch {
	case s == None:
		return other
	case other == None || s == other:
		return s
	}
	return s + ";" + other
}

// On returns text in the style. The text must be clean.
func (s Style) On(text string) string {
	if s == None || text == "" {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[m"
}

// Span is some text in one style.
type Span struct {
	Text  string
	Style Style
}

// Joined returns the spans as one line.
func Joined(spans []Span) string {
	var b strings.Builder
	for _, span := range spans {
		b.WriteString(span.Style.On(span.Text))
	}
	return b.String()
}
