// Chaos follows a session through a bad network and prints what it holds at the end: chaos ADDRESS SESSION_ID.
// tests/support/chaos/programs.py says when that is.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	turnwire "github.com/turnwire/turnwire/clients/go"
	pb "github.com/turnwire/turnwire/clients/go/opencode"
)

const end = "CHAOS END"

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: chaos ADDRESS SESSION_ID")
		os.Exit(2)
	}
	if err := follow(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func follow(address, sessionID string) error {
	client, err := turnwire.Dial(address, turnwire.WithWaitForServer())
	if err != nil {
		return err
	}
	defer client.Close()
	started, events, lost, rereads := time.Now(), 0, 0, 0
	for update, err := range client.Watch(context.Background(), sessionID) {
		if err != nil {
			return err
		}
		switch {
		case update.Event != nil:
			events++
		case update.Lost != nil:
			lost++
			fmt.Fprintf(os.Stderr, "%v: %v\n", time.Since(started).Round(time.Millisecond), update.Lost)
		case update.Reread:
			rereads++
		}
		if ended(update.Conversation) {
			fmt.Fprintf(os.Stderr, "%d events, %d times lost, %d times read\n", events, lost, rereads)
			return print(update.Conversation.Messages())
		}
	}
	return errors.New("the session was deleted")
}

// ended reports whether the traffic is over.
func ended(conversation *turnwire.Conversation) bool {
	messages := conversation.Messages()
	if len(messages) == 0 || conversation.Status() != pb.SessionStatus_SESSION_STATUS_IDLE {
		return false
	}
	last := messages[len(messages)-1]
	return last.GetType() == pb.MessageType_MESSAGE_TYPE_ASSISTANT &&
		last.GetStatus() == pb.MessageStatus_MESSAGE_STATUS_COMPLETE &&
		turnwire.TextOf(last) == end && len(conversation.Waiting()) == 0
}

func print(messages []*pb.SessionMessage) error {
	lines := make([]json.RawMessage, len(messages))
	for i, message := range messages {
		line, err := protojson.Marshal(message)
		if err != nil {
			return err
		}
		lines[i] = line
	}
	return json.NewEncoder(os.Stdout).Encode(lines)
}
