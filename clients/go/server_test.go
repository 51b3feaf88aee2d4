package turnwire_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	turnwire "github.com/turnwire/turnwire/clients/go"
	pb "github.com/turnwire/turnwire/clients/go/opencode"
)

// serverAddress returns the address of a real server, which tests/clients/test_go.py starts.
func serverAddress(t testing.TB) string {
	t.Helper()
	address := os.Getenv("TURNWIRE_ADDRESS")
	if address == "" {
		t.Skip("needs a server: TURNWIRE_ADDRESS=HOST:PORT")
	}
	return address
}

// dial returns a client of the real server, and checks at the end of the test that nothing of it runs any more.
func dial(t *testing.T, options ...turnwire.Option) *turnwire.Client {
	t.Helper()
	return dialTo(t, serverAddress(t), options...)
}

func dialTo(t *testing.T, address string, options ...turnwire.Option) *turnwire.Client {
	t.Helper()
	client, err := turnwire.Dial(address, options...)
	if err != nil {
		t.Fatal(err)
	}
	open.Add(1)
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		if open.Add(-1) == 0 {
			nothingRuns(t)
		}
	})
	return client
}

// open counts the clients of the test that runs.
var open atomic.Int32

// nothingRuns fails unless all goroutines of this package and of gRPC's client end.
func nothingRuns(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); ; runtime.Gosched() {
		left := goroutines()
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("%d goroutines still run:\n%s", len(left), strings.Join(left, "\n\n"))
			return
		}
	}
}

// goroutines returns the stacks of those that are of this package or of gRPC's client.
func goroutines() []string {
	buffer := make([]byte, 4<<20)
	buffer = buffer[:runtime.Stack(buffer, true)]
	var found []string
	for stack := range strings.SplitSeq(string(buffer), "\n\n") {
		if strings.Contains(stack, "testing.tRunner") || ofServer.MatchString(stack) {
			continue
		}
		if strings.Contains(stack, "clients/go.") || strings.Contains(stack, "google.golang.org/grpc") {
			found = append(found, stack)
		}
	}
	return found
}

// ofServer matches the goroutines of a fake.
var ofServer = regexp.MustCompile(`\(\*fake\)|grpc\.\(\*Server\)|http2Server|NewServerTransport`)

// background returns a context that ends with the test, or after a time in which every test ends.
func background(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// mortal skips a test unless somebody kills the server when control says so.
func mortal(t *testing.T) {
	t.Helper()
	if os.Getenv("TURNWIRE_CONTROL") == "" {
		t.Skip("needs a server that can be killed: TURNWIRE_CONTROL=HOST:PORT")
	}
}

// control tells tests/clients/test_go.py to kill the server (SIGKILL), to stop it (SIGTERM) or to start it again, and waits until that is done.
func control(t *testing.T, command string) error {
	connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", os.Getenv("TURNWIRE_CONTROL"))
	if err != nil {
		return err
	}
	defer connection.Close()
	fmt.Fprintln(connection, command)
	answer, err := bufio.NewReader(connection).ReadString('\n')
	if err != nil || answer != "done\n" {
		return fmt.Errorf("%s: %q, %w", command, answer, err)
	}
	return nil
}

// isAsStored fails unless a conversation holds what the server answers when it is asked.
func isAsStored(t *testing.T, client *turnwire.Client, conversation *turnwire.Conversation) {
	t.Helper()
	request := &pb.ListMessagesRequest{SessionId: conversation.SessionID(), PageSize: 1000}
	var listed []*pb.SessionMessage
	for {
		page, err := client.Messages.ListMessages(background(t), request)
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, page.GetMessages()...)
		if request.PageToken = page.GetNextPageToken(); request.PageToken == "" {
			break
		}
	}
	same(t, append(conversation.Messages(), conversation.Waiting()...), listed)
}

// same fails unless two conversations are equal, as far as events tell them: a growing text is stored without an event.
func same(t *testing.T, held, wanted []*pb.SessionMessage) {
	t.Helper()
	if len(held) != len(wanted) {
		t.Fatalf("%d messages, wanted %d: %q, wanted %q", len(held), len(wanted), each(held, (*pb.SessionMessage).GetMessageId), each(wanted, (*pb.SessionMessage).GetMessageId))
	}
	for i := range held {
		if got, want := told(held[i]), told(wanted[i]); !proto.Equal(got, want) {
			t.Errorf("message %d is\n%.2000s, wanted\n%.2000s", i, got.String(), want.String())
		}
	}
}

func told(message *pb.SessionMessage) *pb.SessionMessage {
	message = proto.CloneOf(message)
	message.UpdateTime = nil
	if message.GetStatus() == pb.MessageStatus_MESSAGE_STATUS_STREAMING {
		message.Usage, message.ModelRun = nil, nil
	}
	return message
}
