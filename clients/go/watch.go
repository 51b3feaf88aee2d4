package turnwire

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	pb "github.com/turnwire/turnwire/clients/go/opencode"
)

// Update is what a watch tells: an event and the conversation with it, or that the conversation was read anew, or that the
// connection is lost.
type Update struct {
	// Event is what happened. It is nil when Reread or Lost is set; its getters may be called all the same.
	Event *pb.SessionEvent
	// Conversation is all that is known, this event included. It is the same one for the whole watch.
	Conversation *Conversation
	// Reread is true when the conversation was read from the server's list: at the start, and when it lost or got messages
	// that no event tells. It has all that happened until now, the session and the open requests too; the events since the list
	// follow one by one.
	Reread bool
	// Lost says why the connection is lost. The watch tries again and goes on by itself; Lost is told once for each time.
	Lost error
	// More is true when further events came with this one and follow at once: a program that draws can wait for the last.
	More bool
	// ResumeToken is the place behind this update, for [FromToken]. It is "" unless the place has moved.
	ResumeToken string
}

// WatchOption changes what a watch does.
type WatchOption func(*watching)

type watching struct {
	client       *Client
	conversation *Conversation
	token        string
	beginning    bool
	live         bool
	deltas       pb.DeltaMode
	list         bool               // the conversation has to be read before the next stream
	next         *Conversation      // was read, and takes the place of conversation when it has caught up
	since        []*pb.SessionEvent // what it took in
}

// FromToken begins behind the place of a resume token, without reading the list first. The conversation then holds what came
// since: all of it when the token is that of the message that created the session.
func FromToken(token string) WatchOption {
	return func(w *watching) { w.token = token }
}

// FromBeginning begins with the first event that is kept, without reading the list first.
func FromBeginning() WatchOption {
	return func(w *watching) { w.beginning = true }
}

// FromNow begins with what streams now, without reading the list first.
func FromNow() WatchOption {
	return func(w *watching) { w.live = true }
}

// WithoutDeltas leaves out the pieces of texts that grow: a text comes when it is complete.
func WithoutDeltas() WatchOption {
	return func(w *watching) { w.deltas = pb.DeltaMode_DELTA_MODE_NONE }
}

// Watch follows a session until the context ends, the loop is left or the session is deleted. It reads the conversation first,
// which is the first update (Reread), and then yields each event with the conversation as it is with it. Until the first
// update the conversation is empty.
//
// When the connection breaks or the server restarts, the watch goes on where it was, after growing pauses. Nothing is
// missing and nothing comes twice. When the server says that what is held is no longer true, the watch reads the conversation
// again and yields that. An error is the last thing that it yields: the context ended, the session does not exist, the
// caller may not read it, or nobody has ever answered at the address (see [WithWaitForServer]).
//
// The events are read as fast as the loop takes them. A loop that is slow gets texts in larger pieces.
func (c *Client) Watch(ctx context.Context, sessionID string, options ...WatchOption) iter.Seq2[Update, error] {
	return func(yield func(Update, error) bool) {
		w := &watching{client: c, conversation: NewConversation(sessionID)}
		for _, option := range options {
			option(w)
		}
		w.list = w.token == "" && !w.beginning && !w.live
		stopped := false
		tell := func(update Update) error {
			update.Conversation = w.conversation
			if stopped = stopped || !yield(update, nil); stopped {
				return errStop
			}
			return nil
		}
		err := c.follow(ctx, follower{
			begin: w.begin,
			take:  func(batch *pb.WatchEventsResponse) error { return w.take(batch, tell) },
			lost:  func(err error) error { return tell(Update{Lost: err}) },
		})
		if err != nil && !stopped {
			yield(Update{Conversation: w.conversation}, err)
		}
	}
}

// WatchAll follows all sessions of the caller's tenant until the context ends or the loop is left. It yields their durable
// events and snapshots, from now on and without the pieces of texts that grow, and goes on by itself as [Client.Watch] does.
// A resync event means that events of a session, or of all when it names none, are missing: read again what is kept of them.
// An error is the last thing that it yields.
func (c *Client) WatchAll(ctx context.Context) iter.Seq2[*pb.SessionEvent, error] {
	return func(yield func(*pb.SessionEvent, error) bool) {
		token, stopped := "", false
		err := c.follow(ctx, follower{
			begin: func(context.Context) (*pb.WatchEventsRequest, error) {
				request := &pb.WatchEventsRequest{DeltaMode: pb.DeltaMode_DELTA_MODE_NONE}
				if token != "" {
					request.Start = &pb.WatchEventsRequest_ResumeToken{ResumeToken: token}
				}
				return request, nil
			},
			take: func(batch *pb.WatchEventsResponse) error {
				for _, event := range batch.GetEvents() {
					if stopped = !yield(event, nil); stopped {
						return errStop
					}
				}
				if batch.GetResumeToken() != "" {
					token = batch.GetResumeToken()
				}
				return nil
			},
			lost: func(error) error { return nil },
		})
		if err != nil && !stopped {
			yield(nil, err)
		}
	}
}

// begin reads the conversation when that is due, and returns where the stream begins.
func (w *watching) begin(ctx context.Context) (*pb.WatchEventsRequest, error) {
	if w.list {
		if err := w.read(ctx); err != nil {
			return nil, err
		}
		w.list = false
	}
	request := &pb.WatchEventsRequest{SessionId: w.conversation.SessionID(), DeltaMode: w.deltas}
	if w.token != "" {
		request.Start = &pb.WatchEventsRequest_ResumeToken{ResumeToken: w.token}
	} else if w.beginning {
		request.Start = &pb.WatchEventsRequest_FromBeginning{FromBeginning: true}
	}
	return request, nil
}

// read reads the list. Its newest page comes first: that one's place counts, and what changes while the others are read is among
// its messages, so the events since then lead from it to what is stored.
func (w *watching) read(ctx context.Context) error {
	request := &pb.ListMessagesRequest{SessionId: w.conversation.SessionID(), PageSize: 1000, NewestFirst: true}
	var messages []*pb.SessionMessage
	var sequence uint64
	var token string
	for {
		page, err := w.client.Messages.ListMessages(ctx, request)
		if err != nil {
			return err
		}
		if request.GetPageToken() == "" {
			sequence, token = page.GetSequence(), page.GetResumeToken()
		}
		messages = append(messages, page.GetMessages()...)
		if page.GetNextPageToken() == "" {
			break
		}
		request.PageToken = page.GetNextPageToken()
	}
	slices.Reverse(messages)
	w.next, w.since, w.token = NewConversation(w.conversation.SessionID()), nil, token
	w.next.Load(messages, sequence)
	return nil
}

func (w *watching) take(batch *pb.WatchEventsResponse, tell func(Update) error) error {
	for i, event := range batch.GetEvents() {
		last := i+1 == len(batch.GetEvents())
		update := Update{Event: event, More: !last}
		if last && batch.GetResumeToken() != "" {
			w.token, update.ResumeToken = batch.GetResumeToken(), batch.GetResumeToken()
		}
		if err := w.takeEvent(update, tell); err != nil {
			return err
		}
	}
	return nil
}

func (w *watching) takeEvent(update Update, tell func(Update) error) error {
	event, folding := update.Event, w.conversation
	if w.next != nil {
		folding = w.next
	}
	folding.Apply(event)
	if folding.NeedsReread() {
		w.list, w.next = true, nil
		if folding == w.conversation {
			if err := tell(update); err != nil {
				return err
			}
		}
		return errAgain // what follows is in the list
	}
	if w.next != nil {
		if event.GetCaughtUp() == nil && event.GetSessionDeleted() == nil {
			w.since = append(w.since, event)
			return nil
		}
		if err := w.show(tell); err != nil {
			return err
		}
	}
	if err := tell(update); err != nil {
		return err
	}
	if event.GetSessionDeleted() != nil {
		return errStop
	}
	return nil
}

// show puts what was read in place of what is held, and tells the events since.
func (w *watching) show(tell func(Update) error) error {
	since := w.since
	w.conversation.become(w.next)
	w.next, w.since = nil, nil
	if err := tell(Update{Reread: true, More: true}); err != nil {
		return err
	}
	for _, event := range since {
		if err := tell(Update{Event: event, More: true}); err != nil {
			return err
		}
	}
	return nil
}

var (
	errStop  = errors.New("the loop was left")
	errAgain = errors.New("the watch begins anew")
)

// follower is what a watch does with its streams.
type follower struct {
	begin func(context.Context) (*pb.WatchEventsRequest, error) // says where the next stream begins
	take  func(*pb.WatchEventsResponse) error                   // takes a batch; errStop ends, errAgain begins anew
	lost  func(error) error                                     // is told once that the connection is lost
}

// follow opens one stream after the other until it is told to stop (nil) or going on is of no use.
func (c *Client) follow(ctx context.Context, f follower) error {
	var again time.Time // when a stream last had to begin anew
	for attempt := 0; ; {
		progress, err := c.followOnce(ctx, f)
		if errors.Is(err, errStop) {
			return nil
		}
		if errors.Is(err, errAgain) {
			attempt = 0
			if time.Since(again) < time.Second { // lists are large: a session that changes all the time is read now and then
				if err := sleep(ctx, longestPause/5); err != nil {
					return err
				}
			}
			again = time.Now()
			continue
		}
		if progress {
			attempt = 0
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !c.worthResuming(err, attempt) {
			return err
		}
		if attempt == 0 {
			if stop := f.lost(err); stop != nil {
				return nil
			}
		}
		if err := sleep(ctx, pauseBefore(attempt, err)); err != nil {
			return err
		}
		attempt++
	}
}

// followOnce reads one stream to its end, and reports whether anything came. Its error is never nil.
func (c *Client) followOnce(ctx context.Context, f follower) (progress bool, err error) {
	request, err := f.begin(ctx)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream, whatever is on its way
	stream, err := c.Events.WatchEvents(ctx, request)
	if err != nil {
		return false, err
	}
	for {
		batch, err := c.receive(stream, cancel)
		if err != nil {
			return progress, err
		}
		progress = true
		if err := f.take(batch); err != nil {
			return progress, err
		}
	}
}

// receive returns the next batch. A server that sends nothing, no heartbeat either, is gone.
func (c *Client) receive(
	stream grpc.ServerStreamingClient[pb.WatchEventsResponse], cancel context.CancelFunc,
) (*pb.WatchEventsResponse, error) {
	timer := time.AfterFunc(c.settings.silence, cancel)
	batch, err := stream.Recv()
	if !timer.Stop() && err != nil {
		message := fmt.Sprintf("no sign of life for %v", c.settings.silence)
		return nil, &Error{Code: codes.Unavailable, Message: message, cause: err}
	}
	return batch, err
}

// worthResuming reports whether a watch that failed can go on.
func (c *Client) worthResuming(err error, attempt int) bool {
	var failed *Error
	switch {
	case errors.As(err, &failed) && failed.Code == codes.Unauthenticated:
		return c.settings.renewable && attempt == 0 // with another token
	case failed != nil && failed.Code == codes.Internal && failed.Reason != "":
		return attempt < 5 // the server failed, perhaps with this session alone
	case !broken(err):
		return false
	default:
		return c.reached.Load() || c.settings.patient || failed == nil || failed.Reason != ""
	}
}
