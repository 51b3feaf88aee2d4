// Lets the model ask you a question: go run ./clienttool [TEXT [HOST:PORT]]. The tool ask_user runs here, in the client.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/turnwire/turnwire/generated/go/opencode"
)

// defaultText ends with a line that makes the offline model call the tool.
const defaultText = `Ask me for my name with ask_user, then greet me.
/tool ask_user {"question": "What is your name?"}`

const schema = `{"type": "object", "properties": {"question": {"type": "string"}}, "required": ["question"]}`

var (
	askUser  = &pb.ToolDefinition{Name: "ask_user", Description: "Asks the user a question.", InputSchemaJson: schema}
	keyboard = bufio.NewReader(os.Stdin)
	typed    = map[string]string{}
)

// answer asks the question of a call, once: if the call is seen again, it gets the same answer again.
func answer(call *pb.ToolCallState) (string, error) {
	if known, ok := typed[call.Id]; ok {
		return known, nil
	}
	var arguments struct{ Question string }
	if err := json.Unmarshal([]byte(call.InputJson), &arguments); err != nil {
		return "", err
	}
	fmt.Print(arguments.Question, " ")
	line, err := keyboard.ReadString('\n')
	typed[call.Id] = strings.TrimSpace(line)
	return typed[call.Id], err
}

func run(text, target string) error {
	connection, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	tools := pb.NewToolServiceClient(connection)
	ctx := context.Background()
	request := &pb.SendMessageRequest{
		Parts: []*pb.MessagePart{{Content: &pb.MessagePart_Text{Text: &pb.TextPart{Text: text}}}},
		Tools: []*pb.ToolDefinition{askUser},
	}
	stream, err := pb.NewMessageServiceClient(connection).StreamMessage(ctx, &pb.StreamMessageRequest{Message: request})
	if err != nil {
		return err
	}
	for {
		batch, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, event := range batch.Events {
			call := event.GetToolCallUpdated().GetState()
			waits := call.GetStatus() == "pending" && call.GetPermissionId() == "" && call.GetLease() == nil
			if call.GetName() == "ask_user" && waits {
				output, err := answer(call)
				if err != nil {
					return err
				}
				result := &pb.SubmitToolResultRequest{
					SessionId: event.SessionId, ToolCallId: call.Id,
					Result: &pb.SubmitToolResultRequest_Output{Output: output},
				}
				if _, err := tools.SubmitToolResult(ctx, result); err != nil {
					return err
				}
			}
			if words := event.GetPartFinished().GetPart().GetText().GetText(); words != "" {
				fmt.Println(words)
			}
			if failure := event.GetTurnEnded().GetTurn().GetFailure(); failure != nil {
				return fmt.Errorf("%s: %s", failure.Reason, failure.Message)
			}
		}
	}
}

func main() {
	arguments := append(os.Args[1:], []string{defaultText, "127.0.0.1:50051"}[min(len(os.Args)-1, 2):]...)
	if err := run(arguments[0], arguments[1]); err != nil {
		log.Fatal(err)
	}
}
