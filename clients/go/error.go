package turnwire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/turnwire/turnwire/clients/go/opencode"
)

// Error is the error of a call, or of a turn that failed. All errors of calls are of this type: find it with [errors.As].
type Error struct {
	// Code is the status of the call. It is [codes.Unknown] for a failed turn, which is no failed call.
	Code codes.Code
	// Reason is the server's stable word, such as "SESSION_NOT_FOUND": the name of a [pb.ErrorReason]. It is "" for errors of
	// the connection.
	Reason string
	// Message is a sentence for people. It may change.
	Message string
	// Metadata holds the facts that belong to the reason, by lowerCamelCase key.
	Metadata map[string]string
	// Fields names every field of the request that is wrong.
	Fields []FieldViolation
	// RetryAfter is the time to wait before another try. It is 0 when the server named none.
	RetryAfter time.Duration
	// Turn is the turn that failed. It is nil for the error of a call.
	Turn *pb.Turn

	status *status.Status
	cause  error
}

// FieldViolation says what is wrong with a field of a request.
type FieldViolation struct {
	// Field is its path, such as "parts[0].file.url".
	Field string
	// Description is a sentence for people.
	Description string
}

// Error returns reason or status, and the message.
func (e *Error) Error() string {
	word := e.Reason
	if word == "" {
		word = e.Code.String()
	}
	if len(e.Fields) == 0 {
		return word + ": " + e.Message
	}
	wrong := make([]string, len(e.Fields))
	for i, field := range e.Fields {
		wrong[i] = field.Field
	}
	return fmt.Sprintf("%s: %s (%s)", word, e.Message, strings.Join(wrong, ", "))
}

// Unwrap returns what caused the error: [context.Canceled] or [context.DeadlineExceeded] when the caller's context ended.
func (e *Error) Unwrap() error { return e.cause }

// GRPCStatus returns the status with all of its details, for the functions of package [status].
func (e *Error) GRPCStatus() *status.Status {
	if e.status == nil {
		return status.New(e.Code, e.Message)
	}
	return e.status
}

// HasReason reports whether an error is, or wraps, an [Error] with this reason.
func HasReason(err error, reason pb.ErrorReason) bool {
	var failed *Error
	return errors.As(err, &failed) && failed.Reason == reason.String()
}

// asError makes an Error of the error of a call. The end of a stream and what is an Error already stay as they are.
func asError(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	var known *Error
	if errors.As(err, &known) {
		return err
	}
	answered, ok := status.FromError(err)
	if !ok {
		return err
	}
	failed := &Error{Code: answered.Code(), Message: answered.Message(), status: answered, cause: err}
	if ended := context.Cause(ctx); ended != nil && (failed.Code == codes.Canceled || failed.Code == codes.DeadlineExceeded) {
		failed.cause = ended
	}
	for _, detail := range answered.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			failed.Reason, failed.Metadata = detail.GetReason(), detail.GetMetadata()
		case *errdetails.RetryInfo:
			failed.RetryAfter = detail.GetRetryDelay().AsDuration()
		case *errdetails.BadRequest:
			for _, wrong := range detail.GetFieldViolations() {
				failed.Fields = append(failed.Fields, FieldViolation{wrong.GetField(), wrong.GetDescription()})
			}
		}
	}
	return failed
}

// failedTurn returns the error of a turn that failed, nil for one that did not.
func failedTurn(turn *pb.Turn) error {
	failure := turn.GetFailure()
	if failure == nil {
		return nil
	}
	return &Error{
		Code:       codes.Unknown,
		Reason:     failure.GetReason(),
		Message:    failure.GetMessage(),
		Metadata:   maps.Clone(failure.GetMetadata()),
		RetryAfter: failure.GetRetryAfter().AsDuration(),
		Turn:       turn,
	}
}

// broken reports whether an error is one of the connection, after which the same call can work: the server said that it is
// not available, or nothing that came from the server says why.
func broken(err error) bool {
	if errors.Is(err, io.EOF) {
		return true
	}
	var failed *Error
	if !errors.As(err, &failed) {
		return false
	}
	switch failed.Code {
	case codes.Unavailable:
		return true
	case codes.ResourceExhausted:
		return failed.RetryAfter > 0
	case codes.Canceled, codes.DeadlineExceeded, codes.Internal, codes.Unknown, codes.Aborted:
		return failed.Reason == ""
	default:
		return false
	}
}
