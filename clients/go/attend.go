package turnwire

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/turnwire/turnwire/clients/go/opencode"
)

// attendant runs the tools of a program, and asks its handlers of permissions and questions. Each call runs once, in a
// goroutine of its own that ends with the attendant.
type attendant struct {
	client *Client
	tools  map[string]*Tool
	holder string        // of leases; "" runs calls without
	lease  time.Duration // how long one lasts
	slots  chan struct{} // bounds the calls that run at once

	onPermission func(context.Context, *pb.PermissionRequest) (Reply, string)
	onQuestion   func(context.Context, *pb.Question) QuestionReply

	ctx   context.Context
	fail  context.CancelCauseFunc // ends whatever the attendant serves
	group sync.WaitGroup          // all goroutines

	mu    sync.Mutex // protects what follows
	begun map[string]context.CancelFunc
}

const (
	defaultConcurrency = 8
	defaultLease       = time.Minute
	logPause           = 250 * time.Millisecond
	maxLogLines        = 100 // of one renewal
)

func (c *Client) newAttendant(ctx context.Context, fail context.CancelCauseFunc, message *outgoing) *attendant {
	a := &attendant{
		client: c, tools: map[string]*Tool{}, slots: make(chan struct{}, defaultConcurrency),
		holder: defaultHolder(), lease: defaultLease,
		ctx: ctx, fail: fail, begun: map[string]context.CancelFunc{},
	}
	for _, tool := range message.tools {
		a.tools[tool.definition.GetName()] = tool
	}
	a.onPermission, a.onQuestion = message.onPermission, message.onQuestion
	return a
}

// defaultHolder names this program to people.
func defaultHolder() string {
	name := filepath.Base(os.Args[0])
	if host, err := os.Hostname(); err == nil {
		name += " on " + host
	}
	runes := []rune(name)
	return string(runes[:min(len(runes), 128)]) // as long as a holder may be
}

// close ends all that runs and waits for it.
func (a *attendant) close() {
	a.fail(context.Canceled)
	a.group.Wait()
}

// attend does what an event asks for.
func (a *attendant) attend(event *pb.SessionEvent) {
	switch kind := event.GetKind().(type) {
	case *pb.SessionEvent_ToolCallUpdated:
		a.consider(&Call{SessionID: event.GetSessionId(), TurnID: event.GetTurnId(), State: kind.ToolCallUpdated.GetState()})
	case *pb.SessionEvent_MessageSnapshot:
		for _, part := range kind.MessageSnapshot.GetMessage().GetParts() {
			if call := part.GetToolUse(); call != nil {
				a.consider(&Call{SessionID: event.GetSessionId(), TurnID: kind.MessageSnapshot.GetMessage().GetTurnId(), State: call})
			}
		}
	case *pb.SessionEvent_PermissionAsked:
		a.permit(kind.PermissionAsked.GetPermission())
	case *pb.SessionEvent_PermissionSnapshot:
		a.permit(kind.PermissionSnapshot.GetPermission())
	case *pb.SessionEvent_QuestionAsked:
		a.answer(kind.QuestionAsked.GetQuestion())
	case *pb.SessionEvent_QuestionSnapshot:
		a.answer(kind.QuestionSnapshot.GetQuestion())
	case *pb.SessionEvent_PermissionReplied:
		a.settle(kind.PermissionReplied.GetPermissionId())
	case *pb.SessionEvent_QuestionAnswered:
		a.settle(kind.QuestionAnswered.GetQuestionId())
	}
}

// consider runs a call that is ready and that nobody runs yet, and ends one that is settled.
func (a *attendant) consider(call *Call) {
	switch state := call.State; {
	case state.GetStatus() == "success" || state.GetStatus() == "error" || state.GetStatus() == "cancelled":
		a.settle(state.GetId())
	case a.tools[state.GetName()] == nil || !isReady(state):
	default:
		a.start(state.GetId(), func(ctx context.Context) error {
			select {
			case a.slots <- struct{}{}:
				defer func() { <-a.slots }()
				return a.run(ctx, call)
			case <-ctx.Done():
				return nil
			}
		})
	}
}

// isReady reports whether a client may run a call.
func isReady(call *pb.ToolCallState) bool {
	return call.GetStatus() == "pending" && call.StartedAt != nil && call.GetPermissionId() == "" && call.GetLease() == nil
}

// start does work under an id, once.
func (a *attendant) start(id string, work func(context.Context) error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.begun[id] != nil || a.ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithCancel(a.ctx)
	a.begun[id] = cancel
	a.group.Go(func() {
		defer cancel()
		if err := work(ctx); err != nil && ctx.Err() == nil {
			a.fail(err)
		}
	})
}

// settle ends the work under an id and forgets it.
func (a *attendant) settle(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if cancel := a.begun[id]; cancel != nil {
		cancel()
		delete(a.begun, id)
	}
}

// forgetOthers forgets the work whose id is not among these: its end was missed.
func (a *attendant) forgetOthers(ids map[string]bool) {
	a.mu.Lock()
	others := maps.Clone(a.begun)
	a.mu.Unlock()
	for id := range others {
		if !ids[id] {
			a.settle(id)
		}
	}
}

// run runs a call and submits its result. Its error is one that ends the attendant.
func (a *attendant) run(ctx context.Context, call *Call) error {
	if a.holder == "" {
		result := a.result(ctx, call)
		if ctx.Err() != nil {
			return nil
		}
		return a.submit(ctx, call, result, "")
	}
	for ctx.Err() == nil {
		lease, err := a.claim(ctx, call)
		if err != nil || lease == nil {
			return err
		}
		result, err := a.runLeased(ctx, call, lease.GetLeaseId())
		if result == nil || err != nil {
			continue // the lease was lost: whoever claims the call runs it again
		}
		return a.submit(ctx, call, result, lease.GetLeaseId())
	}
	return nil
}

// runLeased runs a call for as long as its lease is renewed; nil when it was lost, or nobody waits for the result any more.
func (a *attendant) runLeased(ctx context.Context, call *Call, leaseID string) (*ToolResult, error) {
	held, letGo := context.WithCancel(ctx)
	lines, renewing := make(chan string, maxLogLines), make(chan struct{})
	call.log = func(line string) {
		select {
		case lines <- line:
		case <-held.Done():
		}
	}
	go func() { // ends before runLeased does
		defer close(renewing)
		a.renew(held, letGo, call, leaseID, lines)
	}()
	result := a.result(held, call)
	lost := held.Err()
	letGo()
	<-renewing
	if ctx.Err() != nil {
		a.release(call, leaseID)
	}
	if lost != nil {
		return nil, lost
	}
	return result, nil
}

// result runs the function of a call.
func (a *attendant) result(ctx context.Context, call *Call) *ToolResult {
	ctx = context.WithValue(ctx, callKey{}, call)
	result, err := a.tools[call.State.GetName()].run(ctx, call.State.GetInputJson())
	if err != nil {
		return &ToolResult{Output: err.Error(), IsError: true}
	}
	if result == nil {
		return &ToolResult{}
	}
	return result
}

// submit stores a result, however long the server is gone. Results that nobody waits for are dropped.
func (a *attendant) submit(ctx context.Context, call *Call, result *ToolResult, leaseID string) error {
	refused := false
	for attempt := 0; ; attempt++ {
		_, err := a.client.Tools.SubmitToolResult(ctx, result.request(call.SessionID, call.State.GetId(), leaseID))
		var failed *Error
		switch {
		case err == nil || ctx.Err() != nil:
			return nil
		case leaseID != "" && errIsOf(err, pb.ErrorReason_LEASE_LOST): // it ended while nobody could reach the server
			lease, err := a.claim(ctx, call)
			if err != nil || lease == nil {
				return err
			}
			leaseID = lease.GetLeaseId()
		case isOver(err):
			return nil
		case errors.As(err, &failed) && failed.Code == codes.InvalidArgument && !refused:
			refused = true // too large, or no JSON: the model reads why
			result = &ToolResult{Output: "The result was refused: " + failed.Error(), IsError: true}
		case !broken(err):
			return fmt.Errorf("the result of %s: %w", call.State.GetName(), err)
		default:
			_ = sleep(ctx, pauseBefore(attempt, err)) // the next call tells that the context ended
		}
	}
}

// isOver reports whether an error says that a call, or its lease, needs no result of this client any more.
func isOver(err error) bool {
	return errIsOf(err,
		pb.ErrorReason_TOOL_CALL_ALREADY_SETTLED, pb.ErrorReason_TOOL_CALL_NOT_FOUND, pb.ErrorReason_SESSION_NOT_FOUND,
		pb.ErrorReason_LEASE_HELD, pb.ErrorReason_LEASE_LOST, pb.ErrorReason_TOOL_CALL_NOT_READY)
}

// claim returns the lease of a call; nil when another client has it, or the call is over.
func (a *attendant) claim(ctx context.Context, call *Call) (*pb.ToolCallLease, error) {
	request := &pb.ClaimToolCallRequest{
		SessionId: call.SessionID, ToolCallId: call.State.GetId(), Holder: a.holder, Duration: durationpb.New(a.lease),
	}
	for attempt := 0; ; attempt++ {
		response, err := a.client.Tools.ClaimToolCall(ctx, request)
		switch {
		case err == nil:
			return response.GetLease(), nil
		case isOver(err) || ctx.Err() != nil:
			a.settle(call.State.GetId()) // an event tells when the call is free again
			return nil, nil
		case !broken(err):
			return nil, fmt.Errorf("the claim of %s: %w", call.State.GetName(), err)
		}
		_ = sleep(ctx, pauseBefore(attempt, err))
	}
}

// renew extends a lease when half of its time is over, and takes along what the tool logs. It ends the tool when the lease is
// lost.
func (a *attendant) renew(ctx context.Context, letGo context.CancelFunc, call *Call, leaseID string, lines <-chan string) {
	timer := time.NewTimer(a.lease / 2)
	defer timer.Stop()
	var log []string
	for {
		select {
		case <-ctx.Done():
			return
		case line := <-lines:
			if log = append(log, line); len(log) == 1 {
				timer.Reset(logPause)
			}
			if len(log) < maxLogLines {
				continue
			}
		case <-timer.C:
		}
		_, err := a.client.Tools.RenewToolCall(ctx, &pb.RenewToolCallRequest{
			SessionId: call.SessionID, ToolCallId: call.State.GetId(), LeaseId: leaseID,
			Duration: durationpb.New(a.lease), LogLines: log,
		})
		switch {
		case err == nil:
			log = nil
			timer.Reset(a.lease / 2)
		case broken(err):
			timer.Reset(pauseBefore(0, err))
		default:
			letGo()
			return
		}
	}
}

// release lets other clients run a call that this one gave up. A lease ends by itself too.
func (a *attendant) release(call *Call, leaseID string) {
	if leaseID == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.ctx), 2*time.Second)
	defer cancel()
	_, _ = a.client.Tools.ReleaseToolCall(ctx, &pb.ReleaseToolCallRequest{
		SessionId: call.SessionID, ToolCallId: call.State.GetId(), LeaseId: leaseID,
	})
}

// permit asks the handler of permissions.
func (a *attendant) permit(request *pb.PermissionRequest) {
	if a.onPermission == nil {
		return
	}
	a.start(request.GetId(), func(ctx context.Context) error {
		reply, reason := a.onPermission(ctx, request)
		if reply == "" || ctx.Err() != nil {
			return nil
		}
		return unlessOver(a.client.AnswerPermission(ctx, request, reply, reason))
	})
}

// answer asks the handler of questions.
func (a *attendant) answer(question *pb.Question) {
	if a.onQuestion == nil {
		return
	}
	a.start(question.GetQuestionId(), func(ctx context.Context) error {
		reply := a.onQuestion(ctx, question)
		if reply.Action == pb.QuestionAction_QUESTION_ACTION_UNSPECIFIED || ctx.Err() != nil {
			return nil
		}
		return unlessOver(a.client.AnswerQuestion(ctx, question, reply))
	})
}

// unlessOver returns an error unless it says that somebody else has answered.
func unlessOver(err error) error {
	if errIsOf(err,
		pb.ErrorReason_PERMISSION_ALREADY_ANSWERED, pb.ErrorReason_PERMISSION_REQUEST_NOT_FOUND,
		pb.ErrorReason_QUESTION_ALREADY_ANSWERED, pb.ErrorReason_QUESTION_NOT_FOUND, pb.ErrorReason_SESSION_NOT_FOUND) {
		return nil
	}
	return err
}
