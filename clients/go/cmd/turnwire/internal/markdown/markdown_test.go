package markdown

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/turnwire/turnwire/clients/go/cmd/turnwire/internal/text"
)

var styles = regexp.MustCompile("\x1b\\[[0-9;]*m")

// bare returns lines without styles.
func bare(lines []string) []string {
	var without []string
	for _, line := range lines {
		without = append(without, strings.TrimRight(styles.ReplaceAllString(line, ""), " "))
	}
	return without
}

func TestRender(t *testing.T) {
	cases := map[string]struct {
		source string
		want   []string
	}{
		"paragraphs": {"one\ntwo\n\nthree", []string{"one two", "", "three"}},
		"heading":    {"# Big\ntext", []string{"Big", "", "text"}},
		"emphasis":   {"**b** *i* `c` ~~s~~", []string{"b i c s"}},
		"list":       {"- a\n- b\n  - c", []string{"• a", "• b", "  • c"}},
		"numbers":    {"3. a\n4. b", []string{"3. a", "4. b"}},
		"tasks":      {"- [x] done\n- [ ] open", []string{"• [x] done", "• [ ] open"}},
		"quote":      {"> said\n> so", []string{"▌ said so"}},
		"code":       {"```go\nif x {\n\ty()\n}\n```", []string{"│ if x {", "│     y()", "│ }"}},
		"link":       {"[words](https://a.example/b)", []string{"words (https://a.example/b)"}},
		"same link":  {"<https://a.example>", []string{"https://a.example"}},
		"image":      {"![cat](cat.png)", []string{"[image: cat] (cat.png)"}},
		"html":       {"a <b>bold</b> tag\n\n<script>x()</script>", []string{"a <b>bold</b> tag", "", "<script>x()</script>"}},
		"rule":       {"a\n\n---\n\nb", []string{"a", "", strings.Repeat("─", 40), "", "b"}},
		"hard break": {"a  \nb", []string{"a", "b"}},
		"entity":     {"&lt;x&gt; &amp; \\*y\\*", []string{"<x> & *y*"}},
		"table": {"| a | b |\n|---|--:|\n| x | 10 |\n| longer | 2 |",
			[]string{"a      │  b", "───────┼───", "x      │ 10", "longer │  2"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := bare(Render(text.Clean(c.source), 60)); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestATableThatIsTooWideIsShownRowByRow(t *testing.T) {
	got := bare(Render("| name | value |\n|---|---|\n| something long | another long one |", 10))
	if !slices.Contains(got, "name:") || !slices.Contains(got, "long") {
		t.Errorf("got %q", got)
	}
}

func TestHostileTextCannotSteerTheTerminal(t *testing.T) {
	hostile := []string{
		"\x1b]0;owned\x07", "&#27;[31mred", "&#x1b;]52;c;aGk=&#7;", "[a](<\x1b]8;;evil\x07>)", "`\x1b[2J`", "<a href='\x1b[5n'>",
		"```\n\x1b[2J\n```", "| \x1b[1m |\n|---|\n| \x9b31m |", "&#x9b;31m", "![\x1b[0m](\x1b[0m)", "\\\x1b[31m", "&#13;&#10;forged",
		"<https://a/\x1b]0;x\x07>", "&#x202e;gnp.exe", "# \x1b[31m",
	}
	for _, source := range hostile {
		for _, line := range Render(text.Clean(source), 40) {
			rest := styles.ReplaceAllString(line, "")
			if strings.ContainsFunc(rest, func(r rune) bool {
				return r < 0x20 || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e
			}) {
				t.Errorf("%q is shown as %q", source, line)
			}
		}
	}
}

func TestLinesFitIntoColumns(t *testing.T) {
	source := "# A heading of some length\n\n> quote > quote\n\n1. item with 世界世界世界世界\n\n   - nested **bold** item\n\n" +
		"| a | b | c |\n|---|---|---|\n| one two three | four | 世界世界世界 |\n\n```\nsome code that is longer than the columns\n```\n" +
		strings.Repeat("> ", 30) + "deep"
	for columns := minColumns * 3; columns < 90; columns++ {
		for _, line := range Render(source, columns) {
			if width := text.Width(line); width > columns+2*maxDepth {
				t.Errorf("%d columns: %q has %d", columns, line, width)
			}
		}
	}
}

func TestADocumentThatGrowsIsLaidOutAsOneThatIsThere(t *testing.T) {
	whole := "# Title\n\nSome *text*\nhere.\n\n```py\nfor x in y:\n\n    print(x)\n```\nafter\n\n1. a\n\n   more\n\n2. b\n\n" +
		strings.Repeat("word ", 5000) + "\n\n```\n" + strings.Repeat("code line\n\n", 4000) + "```\n\nThe end 世界."
	var grown Document
	for at := 0; at < len(whole); {
		at = min(at+1+rand.IntN(2000), len(whole))
		grown.SetText(whole[:at])
		grown.Lines(70)
	}
	var once Document
	once.SetText(whole)
	if got, want := bare(grown.Lines(70)), bare(once.Lines(70)); !slices.Equal(got, want) {
		t.Errorf("%d lines, want %d", len(got), len(want))
	}
	if shown := strings.Join(bare(once.Lines(70)), "\n"); strings.Count(shown, "code line") != 4000 || strings.Contains(shown, "```") {
		t.Errorf("%d lines of code", strings.Count(shown, "code line"))
	}
}

func TestAFrameOfALongAnswerCostsWhatIsNew(t *testing.T) {
	for name, piece := range map[string]string{
		"text": "Some words of an answer. ", "lines": "a line of code\n", "paragraphs": "A paragraph.\n\n", "one word": "xxxxxxxxxx",
		"brackets": "[[[[", "stars": "**_*",
	} {
		t.Run(name, func(t *testing.T) {
			var document Document
			source := "```\n" + strings.Repeat(piece, (1<<20)/len(piece))
			if name != "lines" {
				source = source[4:]
			}
			document.SetText(source)
			document.Lines(80)
			began := time.Now()
			for i := range 20 {
				document.SetText(source + strings.Repeat(piece, i))
				document.Lines(80)
			}
			if each := time.Since(began) / 20; each > 100*time.Millisecond {
				t.Errorf("a frame takes %v", each)
			}
		})
	}
}

func TestATextThatIsReplacedIsLaidOutAnew(t *testing.T) {
	var document Document
	document.SetText("first\n\nsecond\n\nthird")
	document.Lines(40)
	document.SetText("other")
	if got := bare(document.Lines(40)); !slices.Equal(got, []string{"other"}) {
		t.Errorf("got %q", got)
	}
}

func BenchmarkRender(b *testing.B) {
	source := strings.Repeat("Some **bold** text with `code` and [a link](http://x.example).\n\n", 100)
	b.SetBytes(int64(len(source)))
	for b.Loop() {
		Render(source, 80)
	}
}

func ExampleRender() {
	for _, line := range Render("- one\n- two", 20) {
		fmt.Println(styles.ReplaceAllString(line, ""))
	}
	// Output:
	// • one
	// • two
}

func FuzzDocument(f *testing.F) {
	f.Add("# a\n\n```go\nx\n```\n> q\n1. n\n| a | b |\n|---|---|\n| 1 | 2 |\n", 40, 7)
	f.Add("\x1b]0;x\x07&#27;[31m<b>\x9b~~~\n`````\n\t\t- [x] \u202e", 1, 3)
	f.Fuzz(func(t *testing.T, source string, columns, pieces int) {
		columns, pieces = 1+(columns&0x7f), 1+(pieces&0x7)
		hung := time.AfterFunc(5*time.Second, func() { panic(fmt.Sprintf("never laid out: %q in %d columns", source, columns)) })
		defer hung.Stop()
		var grown, once Document
		for i := 1; i <= pieces; i++ {
			grown.SetText(source[:len(source)*i/pieces])
			grown.Lines(columns)
		}
		once.SetText(source)
		lines := grown.Lines(columns)
		if !slices.Equal(lines, once.Lines(columns)) {
			t.Errorf("grown in %d pieces: %q, at once: %q", pieces, lines, once.Lines(columns))
		}
		for _, line := range lines {
			if strings.ContainsFunc(styles.ReplaceAllString(line, ""), func(r rune) bool { return r < 0x20 || r >= 0x7f && r < 0xa0 }) {
				t.Errorf("a control character in %q", line)
			}
		}
	})
}
