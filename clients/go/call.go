package turnwire

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	pb "github.com/turnwire/turnwire/clients/go/opencode"
)

const (
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second
	tenantKey    = "turnwire-tenant"
)

// unary names requests that can have a name, repeats calls that may be repeated, and makes every error an Error.
func (c *Client) unary(
	ctx context.Context, method string, request, answer any,
	connection *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption,
) error {
	ctx = c.forTenant(ctx)
	request = named(request)
	repeatable := mayRepeat(method, request)
	until := time.Now().Add(c.settings.retryFor)
	for attempt := 0; ; attempt++ {
		err := asError(ctx, invoke(ctx, method, request, answer, connection, options...))
		if err == nil || !repeatable || ctx.Err() != nil || !c.worthRepeating(err) {
			return err
		}
		pause := pauseBefore(attempt, err)
		if time.Now().Add(pause).After(until) {
			return err
		}
		if ended := sleep(ctx, pause); ended != nil {
			return fmt.Errorf("%w (%w)", err, ended)
		}
	}
}

// stream makes every error of a stream an Error.
func (c *Client) stream(
	ctx context.Context, description *grpc.StreamDesc, connection *grpc.ClientConn, method string,
	open grpc.Streamer, options ...grpc.CallOption,
) (grpc.ClientStream, error) {
	ctx = c.forTenant(ctx)
	opened, err := open(ctx, description, connection, method, options...)
	if err != nil {
		return nil, asError(ctx, err)
	}
	return &typedStream{opened}, nil
}

type typedStream struct{ grpc.ClientStream }

func (s *typedStream) SendMsg(message any) error {
	return asError(s.Context(), s.ClientStream.SendMsg(message))
}

func (s *typedStream) RecvMsg(message any) error {
	return asError(s.Context(), s.ClientStream.RecvMsg(message))
}

func (c *Client) forTenant(ctx context.Context) context.Context {
	if c.settings.tenant == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, tenantKey, c.settings.tenant)
}

// worthRepeating reports whether the same call can work later. As long as nobody has ever answered at the address it does
// not, unless the client was told to wait.
func (c *Client) worthRepeating(err error) bool {
	var failed *Error
	if !errors.As(err, &failed) || !broken(err) {
		return false
	}
	if failed.Code == codes.Unknown { // a call, unlike a watch, must not be repeated for a reason that nobody knows
		return false
	}
	return c.reached.Load() || c.settings.patient || failed.Reason != ""
}

// named returns the request with a name, if it can have one and has none. The caller's message is not changed.
func named(request any) any {
	message, ok := request.(proto.Message)
	if !ok {
		return request
	}
	reflected := message.ProtoReflect()
	field := reflected.Descriptor().Fields().ByName("request_id")
	if field == nil || field.Kind() != protoreflect.StringKind || reflected.Get(field).String() != "" {
		return request
	}
	copied := shallow(message)
	copied.ProtoReflect().Set(field, protoreflect.ValueOfString(rand.Text()))
	return copied
}

// repeatables remembers what the contract says of each method: name of a method -> bool.
var repeatables sync.Map

// mayRepeat reports whether carrying out a request twice does what carrying it out once does.
func mayRepeat(method string, request any) bool {
	switch request := request.(type) {
	case *pb.AbortSessionRequest: // without a turn, the second one could end the next turn
		return request.GetExpectedTurnId() != ""
	case *pb.PermissionResponse, *pb.UpdateDirectoryRequest, *pb.WriteUploadRequest:
		return true
	case interface{ GetRequestId() string }:
		return true
	}
	if known, ok := repeatables.Load(method); ok {
		return known.(bool)
	}
	name := strings.ReplaceAll(strings.TrimPrefix(method, "/"), "/", ".")
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	repeatable := false
	if described, ok := found.(protoreflect.MethodDescriptor); ok && err == nil {
		options, _ := described.Options().(*descriptorpb.MethodOptions)
		repeatable = options.GetIdempotencyLevel() != descriptorpb.MethodOptions_IDEMPOTENCY_UNKNOWN
	}
	repeatables.Store(method, repeatable)
	return repeatable
}

// shallow returns a copy of a message that shares what its fields refer to.
func shallow[M proto.Message](message M) M {
	source := message.ProtoReflect()
	copied := source.New()
	source.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		copied.Set(field, value)
		return true
	})
	copied.SetUnknown(source.GetUnknown())
	return copied.Interface().(M)
}

// pauseBefore returns how long to wait after a failed attempt, counted from 0: what the server asked for, else a random time
// below a bound that doubles, so that clients of one server do not come back together.
func pauseBefore(attempt int, err error) time.Duration {
	bound := longestPause
	if attempt < 6 {
		bound = min(bound, firstPause<<attempt)
	}
	pause := bound/4 + mathrand.N(bound*3/4)
	var failed *Error
	if errors.As(err, &failed) && failed.RetryAfter > 0 {
		return failed.RetryAfter + pause/4
	}
	return pause
}

// sleep waits; it returns why the context ended if that came first.
func sleep(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
