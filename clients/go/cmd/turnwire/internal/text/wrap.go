package text

import (
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// window is the most bytes of one word that are measured at once, so that a word of a megabyte costs what it is long.
const window = 2048

// Width returns the columns of a line, styles not counted.
func Width(s string) int {
	if isPlainLine(s) {
		return len(s)
	}
	if graphemes.Load() {
		return ansi.StringWidth(s)
	}
	return ansi.StringWidthWc(s)
}

// graphemes says how the terminal counts the columns of characters that are made of several, such as flags. Terminals
// that do not say that they take them together count each alone.
var graphemes atomic.Bool

// CountGraphemes sets whether the terminal takes characters that are made of several together. It says whether that is a
// change: what was laid out before is then to be laid out anew.
func CountGraphemes(together bool) bool {
	return graphemes.Swap(together) != together
}

// truncate cuts as Width counts.
func truncate(s string, columns int, tail string) string {
	if graphemes.Load() {
		return ansi.Truncate(s, columns, tail)
	}
	return ansi.TruncateWc(s, columns, tail)
}

// Cut returns the beginning of a line that fits into so many columns, with "…" in place of what is left out. Styles are
// kept.
func Cut(s string, columns int) string {
	if columns <= 0 {
		return ""
	}
	return truncate(s, columns, "…")
}

// Fit returns a line of exactly so many columns: cut, or filled up with spaces.
func Fit(s string, columns int) string {
	s = Cut(s, columns)
	if missing := columns - Width(s); missing > 0 {
		s += strings.Repeat(" ", missing)
	}
	return s
}

// Wrap breaks clean text into lines of at most so many columns, between words where it can. Line feeds end lines.
func Wrap(s string, columns int, style Style) []string {
	var lines []string
	for line := range strings.SplitSeq(s, "\n") {
		lines = append(lines, WrapSpans([]Span{{Text: line, Style: style}}, columns)...)
	}
	return lines
}

// WrapSpans breaks spans of clean text into lines of at most so many columns, between words where it can. A line feed ends a
// line. Spaces at the beginning of the text stay. There is at least one line; each is complete in itself, styles included.
func WrapSpans(spans []Span, columns int) []string {
	w := wrapper{columns: max(columns, 1)}
	for _, span := range spans {
		w.add(span)
	}
	w.flushWord()
	w.endLine()
	return w.lines
}

// Hard breaks one clean line wherever the columns end, and keeps all spaces, as code needs it. There is at least one line.
func Hard(line string, columns int, style Style) []string {
	columns = max(columns, 1)
	if len(line) <= columns {
		return []string{style.On(line)}
	}
	var lines []string
	for line != "" {
		head := prefix(line, columns)
		lines = append(lines, style.On(head))
		line = line[len(head):]
	}
	return lines
}

// wrapper collects lines. A word may be made of several spans.
type wrapper struct {
	columns   int
	lines     []string
	line      []Span // of the line that is being filled
	used      int    // columns of it
	space     Span   // what stands between the line and the next word
	word      []Span
	wordWidth int
}

func (w *wrapper) add(span Span) {
	rest := span.Text
	for rest != "" {
		switch rest[0] {
		case '\n':
			w.flushWord()
			w.endLine()
			rest = rest[1:]
		case ' ':
			n := len(rest) - len(strings.TrimLeft(rest, " "))
			w.flushWord()
			w.space = Span{Text: w.space.Text + rest[:n], Style: span.Style}
			rest = rest[n:]
		default:
			n := strings.IndexAny(rest, " \n")
			if n < 0 {
				n = len(rest)
			}
			w.word = append(w.word, Span{Text: rest[:n], Style: span.Style})
			w.wordWidth += wordWidth(rest[:n])
			rest = rest[n:]
		}
	}
}

// flushWord puts the word behind the line, or into the next one.
func (w *wrapper) flushWord() {
	if len(w.word) == 0 {
		return
	}
	spaces := len(w.space.Text)
	if w.used > 0 && w.used+spaces+w.wordWidth > w.columns {
		w.endLine()
		spaces = 0
	}
	if spaces > 0 && (w.used > 0 || len(w.lines) == 0) {
		spaces = min(spaces, w.columns/2)
		w.put(Span{Text: w.space.Text[:spaces], Style: w.space.Style}, spaces)
	}
	w.space = Span{}
	for _, piece := range w.word {
		w.putLong(piece)
	}
	w.word, w.wordWidth = w.word[:0], 0
}

// putLong puts a piece of a word that may be longer than a line.
func (w *wrapper) putLong(piece Span) {
	for piece.Text != "" {
		room := w.columns - w.used
		if room <= 0 {
			w.endLine()
			continue
		}
		head := prefix(piece.Text, room)
		width := Width(head)
		if width > room && w.used > 0 {
			w.endLine()
			continue
		}
		w.put(Span{Text: head, Style: piece.Style}, width)
		piece.Text = piece.Text[len(head):]
	}
}

func (w *wrapper) put(span Span, width int) {
	if n := len(w.line); n > 0 && w.line[n-1].Style == span.Style {
		w.line[n-1].Text += span.Text
	} else {
		w.line = append(w.line, span)
	}
	w.used += width
}

func (w *wrapper) endLine() {
	w.lines = append(w.lines, Joined(w.line))
	w.line, w.used, w.space = w.line[:0], 0, Span{}
}

// wordWidth measures a word in windows.
func wordWidth(word string) int {
	width := 0
	for len(word) > window {
		cut := runeStart(word, window)
		width += Width(word[:cut])
		word = word[cut:]
	}
	return width + Width(word)
}

// prefix returns the longest beginning that fits into so many columns, at least one character.
func prefix(s string, columns int) string {
	plain := 0
	for plain < len(s) && plain <= columns && s[plain] >= ' ' && s[plain] < 0x7f {
		plain++
	}
	if plain == len(s) && plain <= columns {
		return s
	}
	if plain > columns {
		return s[:columns]
	}
	part := s
	if limit := 8*columns + 64; len(s) > limit {
		part = s[:runeStart(s, limit)]
	}
	head := truncate(part, columns, "")
	if head != "" && Width(head) <= columns {
		return s[:len(head)]
	}
	used := 0 // a character of several parts that is wider than the columns
	for at, r := range part {
		if used += Width(string(r)); used > columns && at > 0 {
			return s[:at]
		}
	}
	return part
}

// runeStart returns the greatest place up to at where a character begins.
func runeStart(s string, at int) int {
	for at > 1 && !utf8.RuneStart(s[at]) {
		at--
	}
	return at
}

// isPlainLine says whether s is visible ASCII alone, of which each byte is a column.
func isPlainLine(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}
