package text

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestCleanLeavesNothingThatSteersATerminal(t *testing.T) {
	cases := map[string]string{
		"plain\ntext":                         "plain\ntext",
		"\x1b]0;title\x07\x1b[2Jclear":        "]0;title[2Jclear",
		"\u009b31mred\u0090dcs\u009c":         "31mreddcs",
		"over\rwritten":                       "over\nwritten",
		"dos\r\nline":                         "dos\nline",
		"a\tb":                                "a    b",
		"bell\a back\b null\x00 del\x7f":      "bell back null del",
		"line\u2028sep\u2029par\u0085nel\vvt": "line\nsep\npar\nnel\nvt",
		"user\u202etxt.exe":                   "user⟨U+202E⟩txt.exe",
		"\u2066isolated\u2069 \u200fmark":     "⟨U+2066⟩isolated⟨U+2069⟩ ⟨U+200F⟩mark",
		"tag\U000e0041":                       "tag⟨U+E0041⟩",
		"bad\xff\xfeutf":                      "bad��utf",
		"z" + strings.Repeat("\u0301", 100):   "z" + strings.Repeat("\u0301", maxMarks),
		"世界 👩‍👩‍👧 é שלום":                     "世界 👩‍👩‍👧 é שלום",
	}
	for given, want := range cases {
		if got := Clean(given); got != want {
			t.Errorf("Clean(%q) = %q, want %q", given, got, want)
		}
	}
}

func TestLineIsOneLine(t *testing.T) {
	if got := Line(" forged\n● You 12:00\u2028x "); got != "forged ● You 12:00 x" {
		t.Errorf("got %q", got)
	}
}

func TestWrapFitsIntoColumns(t *testing.T) {
	samples := []string{
		"the quick brown fox jumps over the lazy dog", "世界世界世界世界世界", "aaaaaaaaaaaaaaaaaaaaaaaa bb",
		"a 👩‍👩‍👧 family 👍🏽 and 🇩🇪 flags", strings.Repeat("é", 90), "", "   indented text that is long enough", "x\n\ny",
	}
	defer CountGraphemes(false)
	for _, together := range []bool{true, false} {
		CountGraphemes(together)
		for _, sample := range samples {
			for columns := 1; columns < 30; columns++ {
				lines := Wrap(sample, columns, None)
				for _, line := range lines {
					if width := Width(line); width > max(columns, 2) {
						t.Errorf("%d columns: %q has %d", columns, line, width)
					}
				}
				if got := strings.Fields(strings.Join(lines, "")); strings.Join(got, "") != strings.Join(strings.Fields(sample), "") {
					t.Errorf("%d columns: %q lost something: %q", columns, sample, lines)
				}
			}
		}
	}
}

func TestCharactersOfSeveralPartsAreCountedAsTheTerminalDoes(t *testing.T) {
	defer CountGraphemes(false)
	family := "👩‍👩‍👧"
	if got := Width(family); got != 6 {
		t.Errorf("%d columns alone", got)
	}
	if !CountGraphemes(true) || CountGraphemes(true) {
		t.Error("no change, or one too many")
	}
	if got := Width(family); got != 2 {
		t.Errorf("%d columns together", got)
	}
}

func TestWrapKeepsAllWords(t *testing.T) {
	sample := "the quick brown fox 世界 jumps"
	got := strings.Fields(strings.Join(Wrap(sample, 12, None), " "))
	if want := strings.Fields(sample); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWrapBreaksBetweenWords(t *testing.T) {
	got := Wrap("one two three four", 9, None)
	if want := []string{"one two", "three", "four"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestStylesEndWithTheLine(t *testing.T) {
	for _, line := range WrapSpans([]Span{{"bold words here", Bold}, {" and plain", None}}, 8) {
		if strings.Count(line, "\x1b[1m") != strings.Count(line, "\x1b[m") {
			t.Errorf("%q leaves a style open", line)
		}
	}
}

func TestAWordOfAMegabyteIsWrappedQuickly(t *testing.T) {
	for _, word := range []string{strings.Repeat("x", 1<<20), strings.Repeat("世", 1<<18)} {
		began := time.Now()
		lines := Wrap(word, 80, None)
		if strings.Join(lines, "") != word {
			t.Error("not all of it")
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("took %v", took)
		}
	}
}

func TestHardKeepsSpaces(t *testing.T) {
	if got := Hard("    indented code", 10, None); strings.Join(got, "") != "    indented code" {
		t.Errorf("got %q", got)
	}
}

func TestFitHasExactlyTheColumns(t *testing.T) {
	for _, sample := range []string{"", "short", "世界世界世界", Bold.On("a bold line that is long")} {
		if got := Width(Fit(sample, 9)); got != 9 {
			t.Errorf("%q: %d", sample, got)
		}
	}
}
