// Package text makes text that others wrote fit for a terminal: without what steers the terminal, and within columns.
//
// Everything that a model, a tool, a server or another person wrote goes through Clean or Line before it is shown.
package text

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// tabSpaces stand for a tab. A tab of the terminal would end at a column that nobody has counted.
const tabSpaces = "    "

// maxMarks is the most combining marks of one character. More of them would draw over the lines above and below.
const maxMarks = 8

// Clean returns s as it may be shown over several lines. Line feeds stay, and what others treat as a line end becomes
// one. Tabs become spaces. Other control characters are left out. Characters that reorder or hide text are shown by their
// number, such as ⟨U+202E⟩, because by them a person reads other text than there is. Bytes that are no UTF-8 become �.
func Clean(s string) string {
	if isPlain(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + len(s)/8)
	marks := 0
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		at := i
		i += size
		if unicode.In(r, unicode.Mn, unicode.Me) {
			if marks++; marks > maxMarks {
				continue
			}
		} else {
			marks = 0
		}
		switch {
		case r == '\n':
			b.WriteByte('\n')
		case r == '\r':
			if i >= len(s) || s[i] != '\n' {
				b.WriteByte('\n')
			}
		case r == '\t':
			b.WriteString(tabSpaces)
		case r == '\v', r == '\f', r == '\u0085', r == '\u2028', r == '\u2029':
			b.WriteByte('\n')
		case r < 0x20, r >= 0x7f && r < 0xa0:
		case isDeceptive(r):
			fmt.Fprintf(&b, "⟨U+%04X⟩", r)
		case r == utf8.RuneError && size == 1:
			b.WriteRune(utf8.RuneError)
		default:
			b.WriteString(s[at:i])
		}
	}
	return b.String()
}

// Line returns s as Clean does, in one line: line ends become spaces.
func Line(s string) string {
	return strings.TrimSpace(strings.ReplaceAll(Clean(s), "\n", " "))
}

// isPlain says whether s is made of line feeds and visible ASCII alone, as most text is.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < 0x20 && c != '\n') || c >= 0x7f {
			return false
		}
	}
	return true
}

// isDeceptive names characters that are not seen and change what is: marks, embeddings, overrides and isolates of the
// direction of writing, and the tag characters.
func isDeceptive(r rune) bool {
	switch {
	case r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x206f, r == 0x200e, r == 0x200f, r == 0x061c:
		return true
	case r >= 0xfff9 && r <= 0xfffb, r >= 0xe0000 && r <= 0xe007f:
		return true
	}
	return false
}

// Spaced returns s as Line does, but keeps the spaces at both ends: a piece of a text.
func Spaced(s string) string {
	return strings.ReplaceAll(Clean(s), "\n", " ")
}
