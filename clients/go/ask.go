package turnwire

import (
	"context"
	"errors"
	"iter"
	"strings"

	pb "github.com/turnwire/turnwire/clients/go/opencode"
)

// Answer is the answer to a message, while it comes. Read it once: with [Answer.Text], [Answer.Pieces], [Answer.Updates] or
// [Answer.All].
type Answer struct {
	// Sent says what became of the message: its session, its turn, and whether it waits.
	Sent *pb.SendMessageResponse

	client  *Client
	ctx     context.Context // of Ask; an Answer lives as long as the call that made it
	message *outgoing
	turn    *pb.Turn
}

// PieceKind says what a piece of an answer is.
type PieceKind int

// The kinds of pieces.
const (
	PieceText      PieceKind = iota + 1 // what the model says
	PieceReasoning                      // what it thinks, where the provider shows that
	PieceRefusal                        // a refusal in its words
)

// Piece is some text of an answer. The pieces of one part, joined, are its text: each byte comes once.
type Piece struct {
	Kind      PieceKind
	Text      string
	MessageID string // the message that it is part of: a turn with tool calls has several
	PartIndex uint32 // the part
}

// Ask sends a message as [Client.Send] does, and returns its answer, which then is read piece by piece. Tools that the message
// has ([WithTools]) run while it is read. The loop over an answer ends when those that still run have ended: their context
// does.
//
// Leaving the loop or ending the context does not end the turn: [Client.Abort] does.
func (c *Client) Ask(ctx context.Context, sessionID, text string, options ...SendOption) (*Answer, error) {
	message, err := newOutgoing(sessionID, text, options)
	if err != nil {
		return nil, err
	}
	sent, err := c.Messages.SendMessage(ctx, message.request)
	if err != nil {
		return nil, err
	}
	return &Answer{Sent: sent, client: c, ctx: ctx, message: message}, nil
}

// Turn returns how the turn ended: why, and what it used. It is nil until then.
func (a *Answer) Turn() *pb.Turn { return a.turn }

// Err returns why the turn failed: an [*Error] with its Turn. It is nil as long as the turn has not ended, and when it did not
// fail.
func (a *Answer) Err() error { return failedTurn(a.turn) }

// Text yields what the model says, as it comes, with a line break between two parts. The last error is that of the turn when
// it failed: an [*Error] with its Turn.
func (a *Answer) Text() iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		var last *Piece
		for piece, err := range a.Pieces() {
			if err != nil {
				yield("", err)
				return
			}
			if piece.Kind == PieceReasoning {
				continue
			}
			text := piece.Text
			if last != nil && (last.MessageID != piece.MessageID || last.PartIndex != piece.PartIndex) {
				text = "\n" + text
			}
			last = &piece
			if !yield(text, nil) {
				return
			}
		}
	}
}

// All reads the answer to its end and returns its text. With an error it returns the text that came before it.
func (a *Answer) All() (string, error) {
	var all strings.Builder
	for text, err := range a.Text() {
		if err != nil {
			return all.String(), err
		}
		all.WriteString(text)
	}
	return all.String(), nil
}

// Pieces yields text and reasoning as they come. The last error is that of the turn when it failed.
func (a *Answer) Pieces() iter.Seq2[Piece, error] {
	return func(yield func(Piece, error) bool) {
		said := speech{}
		for update, err := range a.Updates() {
			if err != nil {
				yield(Piece{}, err)
				return
			}
			for piece := range said.new(update, a.follows) {
				if !yield(piece, nil) {
					return
				}
			}
		}
		if err := a.Err(); err != nil {
			yield(Piece{}, err)
		}
	}
}

// Updates yields what happens in the session until the turn has ended, as [Client.Watch] does. A turn that failed is no error
// here: [Answer.Err] says so.
func (a *Answer) Updates() iter.Seq2[Update, error] {
	return func(yield func(Update, error) bool) {
		ctx, cancel := context.WithCancelCause(a.ctx)
		work := a.client.newAttendant(ctx, cancel, a.message)
		defer work.close()
		for update, err := range a.client.Watch(ctx, a.Sent.GetSessionId(), FromToken(a.Sent.GetResumeToken())) {
			if err == nil {
				work.attend(update.Event)
				err = a.note(ctx, update)
			}
			if err != nil {
				yield(update, err)
				return
			}
			if !yield(update, nil) || a.turn != nil {
				return
			}
		}
		if a.turn == nil {
			yield(Update{}, &Error{Message: "the session was deleted", Reason: pb.ErrorReason_SESSION_NOT_FOUND.String()})
		}
	}
}

// note finds out whether the turn has ended. A message that joined another turn is answered by that one.
func (a *Answer) note(ctx context.Context, update Update) error {
	turn := update.Event.GetTurnEnded().GetTurn()
	if update.Reread {
		response, err := a.client.Turns.GetTurn(ctx, &pb.GetTurnRequest{
			SessionId: a.Sent.GetSessionId(), TurnId: a.Sent.GetTurnId(),
		})
		if err != nil {
			return err
		}
		turn = response.GetTurn()
		if turn.GetStatus() != pb.TurnStatus_TURN_STATUS_ENDED || turn.GetEndSequence() > update.Conversation.Sequence() {
			return nil // its turn_ended is still to come
		}
	}
	if turn.GetTurnId() != a.Sent.GetTurnId() || turn == nil {
		return nil
	}
	if turn.GetMergedIntoTurnId() == "" {
		a.turn = turn
		return nil
	}
	a.Sent = shallow(a.Sent)
	a.Sent.TurnId = turn.GetMergedIntoTurnId()
	if update.Reread { // that one may have ended as well
		return a.note(ctx, update)
	}
	return nil
}

// follows reports whether a message is part of the answer.
func (a *Answer) follows(message *pb.SessionMessage) bool {
	return message.GetTurnId() == a.Sent.GetTurnId() && message.GetType() == pb.MessageType_MESSAGE_TYPE_ASSISTANT
}

// speech knows how much of each part was told.
type speech map[partPlace]int

type partPlace struct {
	message string
	index   uint32
}

// new yields what an update adds to the messages that wanted accepts.
func (s speech) new(update Update, wanted func(*pb.SessionMessage) bool) iter.Seq[Piece] {
	return func(yield func(Piece) bool) {
		for place, part := range touched(update, wanted) {
			if piece, ok := s.cut(place, part); ok && !yield(piece) {
				return
			}
		}
	}
}

// touched yields the parts that an update is about.
func touched(update Update, wanted func(*pb.SessionMessage) bool) iter.Seq2[partPlace, *pb.Part] {
	return func(yield func(partPlace, *pb.Part) bool) {
		whole := func(message *pb.SessionMessage) bool {
			for _, part := range message.GetParts() {
				if !yield(partPlace{message.GetMessageId(), part.GetIndex()}, part) {
					return false
				}
			}
			return true
		}
		one := func(id string, index uint32) {
			if wanted(update.Conversation.Message(id)) {
				yield(partPlace{id, index}, update.Conversation.part(id, index))
			}
		}
		switch kind := update.Event.GetKind().(type) {
		case *pb.SessionEvent_PartDelta:
			one(kind.PartDelta.GetMessageId(), kind.PartDelta.GetPartIndex())
		case *pb.SessionEvent_PartFinished:
			one(kind.PartFinished.GetMessageId(), kind.PartFinished.GetPart().GetIndex())
		case *pb.SessionEvent_MessageSnapshot:
			if message := kind.MessageSnapshot.GetMessage(); wanted(message) {
				whole(message)
			}
		case nil:
			if !update.Reread {
				return
			}
			for _, message := range update.Conversation.Messages() {
				if wanted(message) && !whole(message) {
					return
				}
			}
		}
	}
}

// cut returns what is new of a part.
func (s speech) cut(place partPlace, part *pb.Part) (Piece, bool) {
	piece := Piece{MessageID: place.message, PartIndex: place.index}
	switch part.GetContent().(type) {
	case *pb.Part_Text:
		piece.Kind = PieceText
	case *pb.Part_Reasoning:
		piece.Kind = PieceReasoning
	case *pb.Part_Refusal:
		piece.Kind = PieceRefusal
	default:
		return piece, false
	}
	text, told := textOf(part), s[place]
	if len(text) <= told {
		return piece, false
	}
	piece.Text = text[told:]
	s[place] = len(text)
	return piece, true
}

// errIsOf reports whether an error has one of these reasons.
func errIsOf(err error, reasons ...pb.ErrorReason) bool {
	var failed *Error
	if !errors.As(err, &failed) {
		return false
	}
	for _, reason := range reasons {
		if failed.Reason == reason.String() {
			return true
		}
	}
	return false
}
