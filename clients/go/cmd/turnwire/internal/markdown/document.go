// Package markdown lays markdown out for a terminal while it is being written.
//
// A Document takes a text that grows and is cut into blocks that no later text changes. A block that has ended is laid out
// once; only the last one is laid out again for each frame, so a frame costs the same however long the text is.
package markdown

import (
	"strings"
	"unicode/utf8"

	"github.com/turnwire/turnwire/clients/go/cmd/turnwire/internal/text"
)

// maxBlock is the most bytes of a block. A longer one is cut, at the end of a line where there is one, so that code of a
// megabyte is not laid out again for each word. It also bounds what the parser gets at once.
const maxBlock = 16 << 10

// Document is a markdown text and how it is laid out. The zero value is empty. It is not safe for use by several goroutines.
type Document struct {
	source string  // all of it, as it was written
	closed []block // blocks that later text does not change
	open   block   // the last one, without its source
	start  int     // where the open block begins
	seen   int     // up to where lines were looked at
	fence  string  // what ends the code at seen; "" outside of code

	width int // of the laid out lines
	lines []string
	laid  int // closed blocks that are part of lines
}

// block is a piece of the source.
type block struct {
	source string
	code   bool // it goes on with code that was cut, and is no markdown
	glued  bool // it goes on where the one before was cut
}

// SetText replaces the text. Text that was appended costs what is new.
func (d *Document) SetText(source string) {
	if source == d.source {
		return
	}
	if !strings.HasPrefix(source, d.source) {
		*d = Document{}
	}
	d.source = source
	d.scan()
}

// Text returns the text as it was set.
func (d *Document) Text() string {
	return d.source
}

// Lines returns the text laid out in so many columns. The slice is valid until the next call, and must not be changed.
func (d *Document) Lines(columns int) []string {
	if columns != d.width {
		d.width, d.lines, d.laid = columns, nil, 0
	}
	for ; d.laid < len(d.closed); d.laid++ {
		d.lines = appendBlock(d.lines, d.closed[d.laid], columns)
	}
	if d.start == len(d.source) {
		return d.lines
	}
	// The capacity ends with the length, so that appending copies and the closed lines stay as they are.
	lines := d.lines[:len(d.lines):len(d.lines)]
	return appendBlock(lines, block{d.source[d.start:], d.open.code, d.open.glued}, columns)
}

// scan looks at the lines that are complete and closes blocks.
func (d *Document) scan() {
	for d.seen < len(d.source) {
		rest := d.source[d.seen:]
		end := strings.IndexByte(rest, '\n')
		if end < 0 || d.seen+end-d.start > maxBlock {
			if len(d.source)-d.start <= maxBlock {
				return
			}
			if d.seen > d.start {
				d.cut(d.seen)
				continue
			}
			at := d.start + maxBlock
			for at > d.start+1 && !utf8.RuneStart(d.source[at]) {
				at--
			}
			d.seen = at
			d.cut(at)
			continue
		}
		d.line(rest[:end])
		d.seen += end + 1
	}
}

// line looks at a complete line that begins at seen.
func (d *Document) line(line string) {
	trimmed := strings.TrimLeft(line, " \t")
	switch {
	case d.fence != "":
		if !closesFence(trimmed, d.fence) {
			return
		}
		d.fence = ""
		if d.open.code {
			d.close(d.seen, block{})
			d.start = d.seen + len(line) + 1 // the end of the code is not shown
			d.open = block{}
		}
	case opensFence(trimmed) != "":
		d.fence = opensFence(trimmed)
		if trimmed == line {
			d.close(d.seen, block{})
		}
	case trimmed == line && line != "" && strings.HasSuffix(d.source[d.start:d.seen], "\n\n"):
		d.close(d.seen, block{})
	}
}

// cut closes a block that is too long.
func (d *Document) cut(at int) {
	d.close(at, block{code: d.fence != "", glued: true})
}

// close ends the open block at a place, where next begins. An empty block is left out.
func (d *Document) close(at int, next block) {
	if at > d.start {
		d.open.source = d.source[d.start:at]
		d.closed = append(d.closed, d.open)
		d.start, d.open = at, next
	}
}

// opensFence returns the fence with which a line begins, at least three of one sign; "" for none.
func opensFence(line string) string {
	for _, sign := range []string{"`", "~"} {
		n := len(line) - len(strings.TrimLeft(line, sign))
		if n >= 3 && (sign == "~" || !strings.Contains(line[n:], "`")) {
			return line[:n]
		}
	}
	return ""
}

// closesFence says whether a line ends the code that a fence began.
func closesFence(line, fence string) bool {
	line = strings.TrimRight(line, " \t\r")
	return len(line) >= len(fence) && strings.Trim(line, fence[:1]) == ""
}

// appendBlock lays a block out behind lines, with an empty line between them.
func appendBlock(lines []string, b block, columns int) []string {
	clean := text.Clean(b.source)
	var laid []string
	if b.code {
		laid = code(strings.TrimSuffix(clean, "\n"), columns)
	} else {
		laid = Render(clean, columns)
	}
	if len(laid) > 0 && len(lines) > 0 && !b.glued {
		lines = append(lines, "")
	}
	return append(lines, laid...)
}
