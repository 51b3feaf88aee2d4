package turnwire_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	turnwire "github.com/turnwire/turnwire/clients/go"
	pb "github.com/turnwire/turnwire/clients/go/opencode"
)

type place struct {
	City string   `json:"city" description:"Where."`
	Unit string   `json:"unit,omitempty" enum:"celsius,kelvin"`
	Days *int     `json:"days"`
	Tags []string `json:"tags,omitempty"`
}

func weather(run func(context.Context, place) (string, error)) *turnwire.Tool {
	return turnwire.NewTool("weather", "Tells the weather.", run)
}

// The schema of a tool is that of its arguments.
func TestSchemaOfArguments(t *testing.T) {
	tool := weather(func(context.Context, place) (string, error) { return "", nil })
	var got, want any
	if err := json.Unmarshal([]byte(tool.Definition().GetInputSchemaJson()), &got); err != nil {
		t.Fatal(err)
	}
	_ = json.Unmarshal([]byte(`{"type":"object","additionalProperties":false,"required":["city"],"properties":{
		"city":{"type":"string","description":"Where."},"unit":{"type":"string","enum":["celsius","kelvin"]},
		"days":{"type":"integer"},"tags":{"type":"array","items":{"type":"string"}}}}`), &want)
	if g, w := asJSON(got), asJSON(want); g != w {
		t.Errorf("%s, wanted %s", g, w)
	}
}

// Every kind of field has a schema, and embedded structs add their fields.
func TestSchemaOfEachType(t *testing.T) {
	type inner struct {
		Name string `json:"name"`
	}
	type arguments struct {
		inner
		Flag   bool             `json:"flag"`
		Share  float64          `json:"share"`
		Count  uint             `json:"count"`
		When   time.Time        `json:"when"`
		Raw    json.RawMessage  `json:"raw"`
		Any    any              `json:"any"`
		Bytes  []byte           `json:"bytes"`
		Map    map[string]inner `json:"map"`
		Hidden string           `json:"-"`
	}
	tool := turnwire.NewTool("t", "", func(context.Context, arguments) (string, error) { return "", nil })
	schema := tool.Definition().GetInputSchemaJson()
	for _, wanted := range []string{
		`"name":{"type":"string"}`, `"flag":{"type":"boolean"}`, `"share":{"type":"number"}`, `"count":{"type":"integer","minimum":0}`,
		`"when":{"type":"string","format":"date-time"}`, `"raw":{}`, `"any":{}`, `"bytes":{"type":"string"}`,
		`"additionalProperties":{"type":"object"`,
	} {
		if !strings.Contains(schema, wanted) {
			t.Errorf("%s is not in %s", wanted, schema)
		}
	}
	if strings.Contains(schema, "idden") {
		t.Error(schema)
	}
}

// A type without a schema is a mistake in the program.
func TestArgumentsWithoutSchema(t *testing.T) {
	type node struct{ Next *node }
	for name, make := range map[string]func(){
		"no struct": func() { turnwire.NewTool("t", "", func(context.Context, string) (string, error) { return "", nil }) },
		"itself":    func() { turnwire.NewTool("t", "", func(context.Context, node) (string, error) { return "", nil }) },
		"channel": func() {
			turnwire.NewTool("t", "", func(context.Context, struct{ C chan int }) (string, error) { return "", nil })
		},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error(name, "has a schema")
				}
			}()
			make()
		}()
	}
}

// The model reads what a tool returns: text, JSON, a result of its own, or why it failed.
func TestToolsRunWhileTheyAreAsked(t *testing.T) {
	client := dial(t)
	text := weather(func(ctx context.Context, in place) (string, error) {
		if call := turnwire.CallFromContext(ctx); call.State.GetName() != "weather" || call.SessionID == "" {
			return "", errors.New("no call")
		}
		return "Rain in " + in.City, nil
	})
	number := turnwire.NewTool("count", "Counts.", func(context.Context, struct{}) (map[string]int, error) {
		return map[string]int{"n": 3}, nil
	})
	own := turnwire.NewTool("own", "", func(context.Context, struct{}) (*turnwire.ToolResult, error) {
		return &turnwire.ToolResult{Output: "its own"}, nil
	})
	fails := turnwire.NewTool("fails", "", func(context.Context, struct{}) (string, error) { return "", errors.New("no luck") })
	answer, err := client.Ask(background(t), "",
		"Go.\n/tool weather {\"city\": \"Utrecht\"}\n/tool count {}\n/tool own {}\n/tool fails {}",
		turnwire.WithTools(text, number, own, fails))
	if err != nil {
		t.Fatal(err)
	}
	all, err := answer.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, wanted := range []string{"Rain in Utrecht", `{"n":3}`, "its own", "no luck"} {
		if !strings.Contains(all, wanted) {
			t.Errorf("%q is not in %q", wanted, all)
		}
	}
}

// A tool that runs when its turn is aborted is told by its context.
func TestAbortEndsATool(t *testing.T) {
	client := dial(t)
	ctx := background(t)
	running, ended := make(chan string, 1), make(chan error, 1)
	slow := weather(func(ctx context.Context, _ place) (string, error) {
		running <- turnwire.CallFromContext(ctx).SessionID
		<-ctx.Done()
		ended <- ctx.Err()
		return "", ctx.Err()
	})
	aborted := make(chan error, 1)
	go func() {
		_, err := client.Messages.AbortSession(ctx, &pb.AbortSessionRequest{SessionId: <-running})
		aborted <- err
	}()
	answer, err := client.Ask(ctx, "", "Go.\n/tool weather {\"city\": \"Utrecht\"}", turnwire.WithTools(slow))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = answer.All()
	if err := <-aborted; err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if answer.Turn().GetFinishReason() != pb.FinishReason_FINISH_REASON_ABORTED {
		t.Error(answer.Turn())
	}
}

// Programs that serve one tool under leases run each call once, those that were open before too, and its log is stored.
func TestServersOfOneToolShareItsCalls(t *testing.T) {
	client := dial(t)
	ctx, cancel := context.WithCancel(background(t))
	var runs atomic.Int32
	tool := weather(func(ctx context.Context, in place) (string, error) {
		runs.Add(1)
		turnwire.CallFromContext(ctx).Log("looking at " + in.City)
		deadline := time.NewTimer(5 * time.Second)
		defer deadline.Stop()
		for { // until the line is stored
			stored, err := client.Messages.ListMessages(ctx, &pb.ListMessagesRequest{SessionId: turnwire.CallFromContext(ctx).SessionID})
			if err != nil || strings.Contains(stored.String(), "looking at "+in.City) {
				return "Rain", err
			}
			select {
			case <-deadline.C:
				return "", errors.New("no log")
			case <-ctx.Done():
				return "", ctx.Err()
			default:
			}
		}
	})
	const question = "Go.\n/tool weather {\"city\": \"Utrecht\"}"
	early, err := client.Send(ctx, "", question, turnwire.WithTools(tool)) // before anybody serves
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 2)
	for _, holder := range []string{"one", "two"} {
		go func() {
			ended <- client.ServeTools(ctx, "", []*turnwire.Tool{tool}, turnwire.WithLeases(holder, 10*time.Second), turnwire.WithConcurrency(2))
		}()
	}
	late, err := client.Send(ctx, "", question, turnwire.WithTools(tool))
	if err != nil {
		t.Fatal(err)
	}
	for _, sent := range []*pb.SendMessageResponse{early, late} {
		for update, err := range client.Watch(ctx, sent.GetSessionId(), turnwire.FromToken(sent.GetResumeToken())) {
			if err != nil {
				t.Fatal(err)
			}
			if turn := update.Event.GetTurnEnded().GetTurn(); turn != nil {
				if turn.GetFailure() != nil {
					t.Error(turn)
				}
				break
			}
		}
	}
	if runs.Load() != 2 {
		t.Errorf("2 calls ran %d times", runs.Load())
	}
	cancel()
	for range 2 {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

// A tool whose lease was lost is told by its context; the program claims the call again and runs it anew.
func TestLostLease(t *testing.T) {
	client := dial(t)
	ctx, cancel := context.WithCancel(background(t))
	defer cancel()
	var runs atomic.Int32
	tool := weather(func(ctx context.Context, _ place) (string, error) {
		if runs.Add(1) == 1 {
			<-ctx.Done()
			return "too late", nil
		}
		return "Sunshine", nil
	})
	sent, err := client.Send(ctx, "", "Go.\n/tool weather {\"city\": \"Utrecht\"}", turnwire.WithTools(tool))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- client.ServeTools(ctx, sent.GetSessionId(), []*turnwire.Tool{tool}, turnwire.WithLeases("one", time.Second))
	}()
	taken := false
	for update, err := range client.Watch(ctx, sent.GetSessionId(), turnwire.FromToken(sent.GetResumeToken())) {
		if err != nil {
			t.Fatal(err)
		}
		state := update.Event.GetToolCallUpdated().GetState()
		if lease := state.GetLease(); lease != nil && !taken {
			taken = true
			if _, err := client.Tools.ReleaseToolCall(ctx, &pb.ReleaseToolCallRequest{
				SessionId: sent.GetSessionId(), ToolCallId: state.GetId(), LeaseId: lease.GetLeaseId(),
			}); err != nil {
				t.Fatal(err)
			}
		}
		if state.GetStatus() == "success" && state.GetOutput() != "Sunshine" {
			t.Error(state)
		}
		if update.Event.GetTurnEnded() != nil {
			break
		}
	}
	if runs.Load() != 2 {
		t.Errorf("%d runs", runs.Load())
	}
	cancel()
	<-ended
}

// A call whose program went away without an answer runs in the program that comes after it.
func TestOpenCallsRunInTheNextProgram(t *testing.T) {
	client := dial(t)
	ctx, cancel := context.WithCancel(background(t))
	began := make(chan struct{})
	hangs := weather(func(ctx context.Context, _ place) (string, error) {
		close(began)
		<-ctx.Done()
		return "", ctx.Err()
	})
	sent, err := client.Send(ctx, "", "Go.\n/tool weather {\"city\": \"Utrecht\"}", turnwire.WithTools(hangs))
	if err != nil {
		t.Fatal(err)
	}
	first := make(chan error, 1)
	go func() { // its lease ends with it
		first <- client.ServeTools(ctx, sent.GetSessionId(), []*turnwire.Tool{hangs})
	}()
	<-began
	cancel()
	<-first
	ctx, cancel = context.WithCancel(background(t))
	defer cancel()
	works := weather(func(context.Context, place) (string, error) { return "Sunshine", nil })
	second := make(chan error, 1)
	go func() {
		second <- client.ServeTools(ctx, sent.GetSessionId(), []*turnwire.Tool{works}, turnwire.WithoutLeases())
	}()
	for update, err := range client.Watch(ctx, sent.GetSessionId()) {
		if err != nil {
			t.Fatal(err)
		}
		messages := update.Conversation.Messages()
		if update.Conversation.Status() == pb.SessionStatus_SESSION_STATUS_IDLE && len(messages) > 0 {
			if text := turnwire.TextOf(messages[len(messages)-1]); !strings.Contains(text, "Sunshine") {
				t.Error(text)
			}
			break
		}
	}
	cancel()
	<-second
}

// A result that the server cannot take is told to the model, and the turn goes on.
func TestRefusedResultIsTold(t *testing.T) {
	client := dial(t)
	broken := turnwire.NewRawTool(&pb.ToolDefinition{Name: "weather"}, func(context.Context, string) (*turnwire.ToolResult, error) {
		return &turnwire.ToolResult{OutputJSON: "{"}, nil
	})
	answer, err := client.Ask(background(t), "", "Go.\n/tool weather {}", turnwire.WithTools(broken))
	if err != nil {
		t.Fatal(err)
	}
	if all, err := answer.All(); err != nil || !strings.Contains(all, "refused") {
		t.Errorf("%q, %v", all, err)
	}
}

// A person is asked before a tool runs, and the model reads why it may not.
func TestPermissions(t *testing.T) {
	client := dial(t)
	var runs atomic.Int32
	erase := turnwire.NewTool("erase", "Erases the board.", func(context.Context, struct{}) (string, error) {
		runs.Add(1)
		return "all gone", nil
	})
	for _, one := range []struct {
		reply  turnwire.Reply
		wanted string
		runs   int32
	}{{turnwire.Reject, "not today", 0}, {turnwire.AllowOnce, "all gone", 1}} {
		answer, err := client.Ask(background(t), "", "Go.\n/tool erase {}", turnwire.WithTools(erase),
			turnwire.WithPermissions(func(_ context.Context, request *pb.PermissionRequest) (turnwire.Reply, string) {
				if request.GetType() != "erase" {
					t.Error(request)
				}
				return one.reply, "not today"
			}))
		if err != nil {
			t.Fatal(err)
		}
		if all, err := answer.All(); err != nil || !strings.Contains(all, one.wanted) || runs.Load() != one.runs {
			t.Errorf("%q, %v, %d runs", all, err, runs.Load())
		}
	}
}

// The conversation holds open requests, which may be answered without a handler.
func TestOpenRequestsAreHeld(t *testing.T) {
	client := dial(t)
	ctx := background(t)
	sent, err := client.Send(ctx, "", "Go.\n/tool erase {}", turnwire.WithTools(
		turnwire.NewTool("erase", "", func(context.Context, struct{}) (string, error) { return "", nil })))
	if err != nil {
		t.Fatal(err)
	}
	answered := ""
	for update, err := range client.Watch(ctx, sent.GetSessionId()) {
		if err != nil {
			t.Fatal(err)
		}
		open := update.Conversation.Permissions()
		if len(open) == 1 && answered == "" {
			answered = open[0].GetId()
			if err := client.AnswerPermission(ctx, open[0], turnwire.Reject, "no"); err != nil {
				t.Fatal(err)
			}
			err := client.AnswerPermission(ctx, open[0], turnwire.AllowOnce, "")
			if !turnwire.HasReason(err, pb.ErrorReason_PERMISSION_ALREADY_ANSWERED) {
				t.Error(err)
			}
		}
		if update.Event.GetPermissionReplied().GetPermissionId() == answered && answered != "" {
			if len(open) != 0 {
				t.Error(open)
			}
			return
		}
	}
}

func asJSON(value any) string {
	encoded, _ := json.Marshal(value)
	return string(encoded)
}
