// Package transcript shows a conversation of any length in a window of some lines.
//
// Only the messages that are in the window are laid out, and what was laid out is kept with each message. So a
// conversation of ten thousand messages scrolls as one of ten does.
package transcript

import (
	"slices"

	pb "github.com/turnwire/turnwire/clients/go/opencode"

	"github.com/turnwire/turnwire/clients/go/cmd/turnwire/internal/text"
)

const (
	// gutter is the columns before each line. A heading has a sign there and content has none, so no content can look like
	// the heading of another message.
	gutter = 2
	// kept is how many messages before and behind the window keep what was laid out.
	kept = 100
)

// List shows messages. The zero value is empty and follows its end.
type List struct {
	items         []*item
	byID          map[string]*item
	width, height int
	// Where the window begins: a line of an item. Not used while the window follows the end.
	top     int
	line    int
	leaves  bool // the window does not follow the end
	chosen  string
	allOpen bool
	laid    map[*item]bool // items that were laid out, until they are forgotten
}

// Resize sets the columns and lines of the window.
func (l *List) Resize(width, height int) {
	l.width, l.height = max(width, gutter+1), max(height, 0)
}

// Set replaces the conversation: these messages in this order. Messages that are the same value as before keep what was laid
// out; what is at the top of the window stays there.
func (l *List) Set(messages []*pb.SessionMessage) {
	if l.sameOrder(messages) {
		for at, message := range messages {
			l.items[at].set(message)
		}
		return
	}
	topID := ""
	if l.leaves && l.top < len(l.items) {
		topID = l.items[l.top].message.GetMessageId()
	}
	byID := make(map[string]*item, len(messages))
	items := make([]*item, 0, len(messages))
	for _, message := range messages {
		known := l.byID[message.GetMessageId()]
		if known == nil {
			known = &item{open: l.allOpen}
		}
		known.set(message)
		items = append(items, known)
		byID[message.GetMessageId()] = known
	}
	l.items, l.byID = items, byID
	if l.leaves {
		at := slices.IndexFunc(items, func(i *item) bool { return i.message.GetMessageId() == topID })
		if at < 0 {
			at = min(l.top, max(len(items)-1, 0))
			l.line = 0
		}
		l.top = at
	}
	if l.chosen != "" && byID[l.chosen] == nil {
		l.chosen = ""
	}
}

// sameOrder says whether the messages are those that are held, whatever changed within them.
func (l *List) sameOrder(messages []*pb.SessionMessage) bool {
	if len(messages) != len(l.items) {
		return false
	}
	for at, message := range messages {
		held := l.items[at].message
		if held != message && held.GetMessageId() != message.GetMessageId() {
			return false
		}
	}
	return true
}

// Len returns how many messages there are.
func (l *List) Len() int { return len(l.items) }

// Following says whether the window shows the end and stays there.
func (l *List) Following() bool { return !l.leaves }

// Position tells how much of the conversation is before the end of the window, in percent of its messages.
func (l *List) Position() int {
	if !l.leaves || len(l.items) == 0 {
		return 100
	}
	return 100 * l.top / len(l.items)
}

// View returns the lines of the window, at most its height.
func (l *List) View() []string {
	if l.height == 0 || len(l.items) == 0 {
		return nil
	}
	if l.leaves {
		l.settle()
	}
	top, line := l.top, l.line
	if !l.leaves {
		top, line = l.end()
	}
	lines := make([]string, 0, l.height)
	at := top
	for ; at < len(l.items) && len(lines) < l.height; at++ {
		laid := l.layOut(at)
		for n := min(line, len(laid)); n < len(laid) && len(lines) < l.height; n++ {
			lines = append(lines, l.gutterOf(l.items[at], n)+laid[n])
		}
		line = 0
	}
	l.release(top, at)
	return lines
}

// layOut returns the lines of the message at a place.
func (l *List) layOut(at int) []string {
	if l.laid == nil {
		l.laid = map[*item]bool{}
	}
	l.laid[l.items[at]] = true
	return l.items[at].layOut(l.width - gutter)
}

// gutterOf returns what stands before a line of a message.
func (l *List) gutterOf(i *item, line int) string {
	chosen := l.chosen != "" && i.message.GetMessageId() == l.chosen
	switch {
	case line == 0 && chosen:
		return text.Reverse.On("▶") + " "
	case line == 0:
		_, style := speaker(i.message)
		return style.On("●") + " "
	case chosen && line < len(i.lines)-1:
		return text.Faint.On("┃") + " "
	default:
		return "  "
	}
}

// end returns where a window begins that shows the end.
func (l *List) end() (top, line int) {
	left := l.height
	for at := len(l.items) - 1; at >= 0; at-- {
		lines := len(l.layOut(at))
		if at == len(l.items)-1 {
			lines-- // without the empty line
		}
		if lines >= left {
			return at, lines - left
		}
		left -= lines
	}
	return 0, 0
}

// settle keeps the window within the conversation, and lets it follow when it has come to the end.
func (l *List) settle() {
	l.top = min(max(l.top, 0), len(l.items)-1)
	l.line = min(max(l.line, 0), max(len(l.layOut(l.top))-1, 0))
	left := l.height
	for at := l.top; at < len(l.items); at++ {
		lines := len(l.layOut(at))
		if at == l.top {
			lines -= l.line
		}
		if at == len(l.items)-1 {
			lines--
		}
		if left -= lines; left <= 0 && (left < 0 || at < len(l.items)-1) {
			return
		}
	}
	l.leaves = false
}

// Scroll moves the window by lines: back when they are negative.
func (l *List) Scroll(lines int) {
	if len(l.items) == 0 || lines == 0 {
		return
	}
	if !l.leaves {
		if lines > 0 {
			return
		}
		l.top, l.line = l.end()
		l.leaves = true
	}
	l.line += lines
	for l.line < 0 && l.top > 0 {
		l.top--
		l.line += len(l.layOut(l.top))
	}
	l.line = max(l.line, 0)
	for l.top < len(l.items)-1 && l.line >= len(l.layOut(l.top)) {
		l.line -= len(l.layOut(l.top))
		l.top++
	}
	l.settle()
}

// Page moves the window by its height, less two lines that stay in sight.
func (l *List) Page(direction int) { l.Scroll(direction * max(l.height-2, 1)) }

// ToStart shows the beginning.
func (l *List) ToStart() {
	if len(l.items) > 0 {
		l.top, l.line, l.leaves = 0, 0, true
		l.settle()
	}
}

// ToEnd shows the end and stays there.
func (l *List) ToEnd() { l.leaves = false }

// Choose marks a message and brings it into the window; "" marks none. It says whether the message is held.
func (l *List) Choose(id string) bool {
	at := slices.IndexFunc(l.items, func(i *item) bool { return i.message.GetMessageId() == id })
	if at < 0 {
		l.chosen = ""
		return false
	}
	l.chosen = id
	if !l.shows(at) {
		l.top, l.line, l.leaves = at, 0, true
		l.settle()
	}
	return true
}

// Chosen returns the message that is marked; nil when none is.
func (l *List) Chosen() *pb.SessionMessage {
	if i := l.byID[l.chosen]; i != nil && l.chosen != "" {
		return i.message
	}
	return nil
}

// ChooseNext marks the next message, or with -1 the one before. Without a mark it begins at the end.
func (l *List) ChooseNext(step int) {
	if len(l.items) == 0 {
		return
	}
	at := slices.IndexFunc(l.items, func(i *item) bool { return i.message.GetMessageId() == l.chosen })
	if at < 0 || l.chosen == "" {
		at = len(l.items) - 1
	} else {
		at = min(max(at+step, 0), len(l.items)-1)
	}
	l.Choose(l.items[at].message.GetMessageId())
}

// shows says whether the heading of a message is in the window.
func (l *List) shows(at int) bool {
	top, line := l.top, l.line
	if !l.leaves {
		top, line = l.end()
	}
	if at < top || at == top && line > 0 {
		return false
	}
	left := l.height + line
	for n := top; n < at; n++ {
		if left -= len(l.layOut(n)); left <= 0 {
			return false
		}
	}
	return true
}

// ToggleFold opens or folds the marked message, or all of them when none is marked.
func (l *List) ToggleFold() {
	if i := l.byID[l.chosen]; i != nil && l.chosen != "" {
		i.fold(!i.open)
		return
	}
	l.allOpen = !l.allOpen
	for _, i := range l.items {
		i.fold(l.allOpen)
	}
}

// LayOutAnew drops all that was laid out, for a terminal that counts columns in another way.
func (l *List) LayOutAnew() {
	for i := range l.laid {
		i.forget()
	}
	clear(l.laid)
}

// release drops what was laid out far from the window, once that is much.
func (l *List) release(from, to int) {
	if len(l.laid) <= 4*kept {
		return
	}
	near := make(map[*item]bool, 2*kept)
	for at := max(from-kept, 0); at < min(to+kept, len(l.items)); at++ {
		near[l.items[at]] = true
	}
	for i := range l.laid {
		if !near[i] {
			i.forget()
			delete(l.laid, i)
		}
	}
}
