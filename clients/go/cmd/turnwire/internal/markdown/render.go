package markdown

import (
	"strconv"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	east "github.com/yuin/goldmark/extension/ast"
	gtext "github.com/yuin/goldmark/text"

	"github.com/turnwire/turnwire/clients/go/cmd/turnwire/internal/text"
)

const (
	// maxDepth is how deep quotes and lists are shown; what is deeper is shown as it was written.
	maxDepth = 8
	// minColumns is what is left for text within quotes and lists.
	minColumns = 8
)

var parser = goldmark.New(goldmark.WithExtensions(extension.Table, extension.Strikethrough, extension.TaskList)).Parser()

// Render lays clean markdown out in lines of at most so many columns. HTML is shown as it was written, and so are addresses
// of links, so that nobody follows one to another place than they see. Each line is complete in itself, styles included.
func Render(source string, columns int) []string {
	src := []byte(source)
	r := renderer{source: src}
	r.children(parser.Parse(gtext.NewReader(src)), max(columns, 1), 0, true)
	return r.lines
}

// code lays out lines of code.
func code(source string, columns int) []string {
	var lines []string
	for line := range strings.SplitSeq(source, "\n") {
		for _, piece := range text.Hard(line, columns-2, text.Cyan) {
			lines = append(lines, text.Faint.On("│ ")+piece)
		}
	}
	return lines
}

// renderer collects the lines of a tree.
type renderer struct {
	source []byte
	lines  []string
}

// children renders the blocks in a node, with empty lines between them unless the node is tight.
func (r *renderer) children(node ast.Node, columns, depth int, apart bool) {
	for child := node.FirstChild(); child != nil; child = child.NextSibling() {
		before := len(r.lines)
		r.block(child, columns, depth)
		if apart && child.PreviousSibling() != nil && len(r.lines) > before && before > 0 {
			r.lines = append(r.lines[:before], append([]string{""}, r.lines[before:]...)...)
		}
	}
}

// block renders one block.
func (r *renderer) block(node ast.Node, columns, depth int) {
	if depth > maxDepth {
		r.raw(node, columns)
		return
	}
	switch node := node.(type) {
	case *ast.Heading:
		style := text.Bold
		if node.Level <= 2 {
			style = text.Bold.And(text.Cyan)
		}
		r.lines = append(r.lines, text.WrapSpans(r.inline(node, style), columns)...)
	case *ast.Paragraph, *ast.TextBlock:
		r.lines = append(r.lines, text.WrapSpans(r.inline(node, text.None), columns)...)
	case *ast.FencedCodeBlock, *ast.CodeBlock:
		r.lines = append(r.lines, code(strings.TrimSuffix(r.written(node), "\n"), columns)...)
	case *ast.HTMLBlock:
		source := r.written(node)
		if node.HasClosure() {
			source += string(node.ClosureLine.Value(r.source))
		}
		r.lines = append(r.lines, text.Wrap(strings.TrimSuffix(source, "\n"), columns, text.None)...)
	case *ast.ThematicBreak:
		r.lines = append(r.lines, text.Faint.On(strings.Repeat("─", min(columns, 40))))
	case *ast.Blockquote:
		r.indented(text.Faint.On("▌ "), text.Faint.On("▌ "), func(inner *renderer) {
			inner.children(node, max(columns-2, minColumns), depth+1, true)
		})
	case *ast.List:
		r.list(node, columns, depth)
	case *east.Table:
		r.lines = append(r.lines, r.table(node, columns)...)
	default:
		r.raw(node, columns)
	}
}

// list renders the items of a list behind their signs.
func (r *renderer) list(node *ast.List, columns, depth int) {
	number := node.Start
	for item := node.FirstChild(); item != nil; item = item.NextSibling() {
		sign := "• "
		if node.IsOrdered() {
			sign = strconv.Itoa(number) + string(node.Marker) + " "
			number++
		}
		if item.PreviousSibling() != nil && !node.IsTight {
			r.lines = append(r.lines, "")
		}
		width := text.Width(sign)
		r.indented(text.Cyan.On(sign), strings.Repeat(" ", width), func(inner *renderer) {
			inner.children(item, max(columns-width, minColumns), depth+1, !node.IsTight)
		})
	}
}

// indented renders with something in front of the first line and of each further one.
func (r *renderer) indented(first, rest string, render func(*renderer)) {
	inner := renderer{source: r.source}
	render(&inner)
	if len(inner.lines) == 0 {
		inner.lines = []string{""}
	}
	for i, line := range inner.lines {
		if i == 0 {
			r.lines = append(r.lines, first+line)
		} else {
			r.lines = append(r.lines, rest+line)
		}
	}
}

// raw renders a block as it was written.
func (r *renderer) raw(node ast.Node, columns int) {
	written := strings.TrimSuffix(r.written(node), "\n")
	if written != "" {
		r.lines = append(r.lines, text.Wrap(written, columns, text.None)...)
		return
	}
	for child := node.FirstChild(); child != nil; child = child.NextSibling() {
		if child.Type() == ast.TypeBlock {
			r.raw(child, columns)
		}
	}
}

// written returns the lines of a block.
func (r *renderer) written(node ast.Node) string {
	if node.Type() == ast.TypeInline {
		return ""
	}
	var b strings.Builder
	lines := node.Lines()
	for i := range lines.Len() {
		segment := lines.At(i)
		b.Write(segment.Value(r.source))
	}
	return b.String()
}
