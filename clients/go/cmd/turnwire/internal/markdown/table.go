package markdown

import (
	"strings"

	"github.com/yuin/goldmark/ast"
	east "github.com/yuin/goldmark/extension/ast"

	"github.com/turnwire/turnwire/clients/go/cmd/turnwire/internal/text"
)

// minCell is the least columns of a cell; a table that would need narrower ones is shown row by row.
const minCell = 6

// table lays a table out: in columns where they fit, else each row as lines of "heading: cell".
func (r *renderer) table(node *east.Table, columns int) []string {
	rows := r.cells(node)
	if len(rows) == 0 || len(rows[0]) == 0 {
		return nil
	}
	widths := columnWidths(rows, columns)
	if widths == nil {
		return rowByRow(rows, columns)
	}
	var lines []string
	for i, row := range rows {
		lines = append(lines, tableRow(row, widths, node.Alignments)...)
		if i == 0 {
			var rules []string
			for _, width := range widths {
				rules = append(rules, strings.Repeat("─", width))
			}
			lines = append(lines, text.Faint.On(strings.Join(rules, "─┼─")))
		}
	}
	return lines
}

// cells returns the spans of all cells, the headings first. Each row has as many as there are headings.
func (r *renderer) cells(node *east.Table) [][][]text.Span {
	var rows [][][]text.Span
	for row := node.FirstChild(); row != nil; row = row.NextSibling() {
		style := text.None
		if _, ok := row.(*east.TableHeader); ok {
			style = text.Bold
		}
		var cells [][]text.Span
		for cell := row.FirstChild(); cell != nil; cell = cell.NextSibling() {
			cells = append(cells, r.inline(ast.Node(cell), style))
		}
		for len(rows) > 0 && len(cells) < len(rows[0]) {
			cells = append(cells, nil)
		}
		if len(rows) > 0 {
			cells = cells[:len(rows[0])]
		}
		rows = append(rows, cells)
	}
	return rows
}

// columnWidths returns what each column gets; nil when they would be too narrow. Wide columns give what narrow ones need.
func columnWidths(rows [][][]text.Span, columns int) []int {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], spansWidth(cell), 1)
		}
	}
	left := columns - 3*(len(widths)-1)
	if left < minCell*len(widths) && left < sum(widths) {
		return nil
	}
	for sum(widths) > left {
		widest := 0
		for i, width := range widths {
			if width > widths[widest] {
				widest = i
			}
		}
		second := minCell
		for i, width := range widths {
			if i != widest && width < widths[widest] {
				second = max(second, width)
			}
		}
		over := sum(widths) - left
		widths[widest] = max(widths[widest]-over, min(second, widths[widest]-1), minCell)
	}
	return widths
}

// tableRow lays out one row, whose cells may need several lines.
func tableRow(row [][]text.Span, widths []int, alignments []east.Alignment) []string {
	wrapped := make([][]string, len(row))
	height := 1
	for i, cell := range row {
		wrapped[i] = text.WrapSpans(cell, widths[i])
		height = max(height, len(wrapped[i]))
	}
	lines := make([]string, 0, height)
	for y := range height {
		cells := make([]string, len(row))
		for i := range row {
			cell := ""
			if y < len(wrapped[i]) {
				cell = wrapped[i][y]
			}
			missing := max(widths[i]-text.Width(cell), 0)
			before := 0
			if i < len(alignments) {
				switch alignments[i] {
				case east.AlignRight:
					before = missing
				case east.AlignCenter:
					before = missing / 2
				default:
				}
			}
			cells[i] = strings.Repeat(" ", before) + cell + strings.Repeat(" ", missing-before)
		}
		lines = append(lines, strings.Join(cells, text.Faint.On(" │ ")))
	}
	return lines
}

// rowByRow lays out a table that is too wide.
func rowByRow(rows [][][]text.Span, columns int) []string {
	var lines []string
	for i, row := range rows[1:] {
		if i > 0 {
			lines = append(lines, "")
		}
		for j, cell := range row {
			spans := append(append([]text.Span{}, rows[0][j]...), text.Span{Text: ": ", Style: text.Bold})
			lines = append(lines, text.WrapSpans(append(spans, cell...), columns)...)
		}
	}
	if len(rows) == 1 {
		for _, cell := range rows[0] {
			lines = append(lines, text.WrapSpans(cell, columns)...)
		}
	}
	return lines
}

func spansWidth(spans []text.Span) int {
	width := 0
	for _, span := range spans {
		width += text.Width(span.Text)
	}
	return width
}

func sum(numbers []int) int {
	total := 0
	for _, number := range numbers {
		total += number
	}
	return total
}
