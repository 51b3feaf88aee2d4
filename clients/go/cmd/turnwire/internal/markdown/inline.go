package markdown

import (
	"strings"

	"github.com/yuin/goldmark/ast"
	east "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/util"

	"github.com/turnwire/turnwire/clients/go/cmd/turnwire/internal/text"
)

// inline returns the spans of a block's text.
func (r *renderer) inline(node ast.Node, style text.Style) []text.Span {
	var spans []text.Span
	for child := node.FirstChild(); child != nil; child = child.NextSibling() {
		spans = append(spans, r.span(child, style)...)
	}
	return spans
}

// span returns the spans of one inline node.
func (r *renderer) span(node ast.Node, style text.Style) []text.Span {
	switch node := node.(type) {
	case *ast.Text:
		value := unescaped(string(node.Value(r.source)))
		switch {
		case node.HardLineBreak():
			value += "\n"
		case node.SoftLineBreak():
			value += " "
		}
		return []text.Span{{Text: value, Style: style}}
	case *ast.String:
		return []text.Span{{Text: text.Clean(string(node.Value)), Style: style}}
	case *ast.CodeSpan:
		var b strings.Builder
		for child := node.FirstChild(); child != nil; child = child.NextSibling() {
			if part, ok := child.(*ast.Text); ok {
				b.Write(part.Value(r.source))
			}
		}
		return []text.Span{{Text: strings.ReplaceAll(b.String(), "\n", " "), Style: style.And(text.Cyan)}}
	case *ast.Emphasis:
		if node.Level >= 2 {
			return r.inline(node, style.And(text.Bold))
		}
		return r.inline(node, style.And(text.Italic))
	case *east.Strikethrough:
		return r.inline(node, style.And(text.Struck))
	case *east.TaskCheckBox:
		if node.IsChecked {
			return []text.Span{{Text: "[x] ", Style: style}}
		}
		return []text.Span{{Text: "[ ] ", Style: style}}
	case *ast.Link:
		return r.link(node, style, string(node.Destination), "")
	case *ast.Image:
		return r.link(node, style, string(node.Destination), "image: ")
	case *ast.AutoLink:
		return []text.Span{{Text: text.Line(string(node.URL(r.source))), Style: style.And(text.Underline)}}
	case *ast.RawHTML:
		var b strings.Builder
		for i := range node.Segments.Len() {
			segment := node.Segments.At(i)
			b.Write(segment.Value(r.source))
		}
		return []text.Span{{Text: b.String(), Style: style}}
	default:
		return r.inline(node, style)
	}
}

// link returns the words of a link with the address that it leads to, unless the words are the address.
func (r *renderer) link(node ast.Node, style text.Style, destination, kind string) []text.Span {
	words := r.inline(node, style.And(text.Underline))
	address := text.Line(destination)
	var shown strings.Builder
	for _, span := range words {
		shown.WriteString(span.Text)
	}
	if kind != "" {
		words = append([]text.Span{{Text: "[" + kind, Style: style}}, append(words, text.Span{Text: "]", Style: style})...)
	}
	if shown.String() == address {
		return words
	}
	return append(words, text.Span{Text: " (" + address + ")", Style: style.And(text.Faint)})
}

// unescaped resolves backslashes and entities. What entities make is cleaned too: &#27; is an escape character.
func unescaped(value string) string {
	if !strings.ContainsAny(value, "&\\") {
		return value
	}
	resolved := util.ResolveEntityNames(util.ResolveNumericReferences(util.UnescapePunctuations([]byte(value))))
	return strings.ReplaceAll(text.Clean(string(resolved)), "\n", " ")
}
