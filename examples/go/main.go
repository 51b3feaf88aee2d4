// Sends a message and prints the answer while it comes: go run . [TEXT [HOST:PORT]]
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/turnwire/turnwire/generated/go/opencode"
)

// place names a part: its message and its index there.
type place struct {
	message string
	index   uint32
}

// held counts the bytes of each part that are on the screen.
var held = map[place]int{}

// show prints what is new of a piece of a part that begins at offset.
func show(message string, index uint32, offset int, text string) {
	part := place{message, index}
	if end := offset + len(text); offset <= held[part] && end > held[part] {
		fmt.Print(text[held[part]-offset:])
		held[part] = end
	}
}

func run(text, target string) error {
	connection, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	request := &pb.StreamMessageRequest{Message: &pb.SendMessageRequest{Parts: []*pb.MessagePart{
		{Content: &pb.MessagePart_Text{Text: &pb.TextPart{Text: text}}},
	}}}
	stream, err := pb.NewMessageServiceClient(connection).StreamMessage(context.Background(), request)
	if err != nil {
		return err
	}
	for {
		answer, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			fmt.Println()
			return nil
		}
		if err != nil {
			return err
		}
		for _, event := range answer.Events {
			if delta := event.GetPartDelta(); delta != nil {
				show(delta.MessageId, delta.PartIndex, int(delta.Offset), delta.Text)
			}
			for _, part := range event.GetMessageSnapshot().GetMessage().GetParts() {
				show(event.GetMessageSnapshot().Message.MessageId, part.Index, 0, part.GetText().GetText())
			}
			if end := event.GetPartFinished(); end != nil {
				show(end.MessageId, end.Part.Index, 0, end.Part.GetText().GetText())
			}
			if failure := event.GetTurnEnded().GetTurn().GetFailure(); failure != nil {
				return fmt.Errorf("%s: %s", failure.Reason, failure.Message)
			}
		}
	}
}

func main() {
	arguments := append(os.Args[1:], []string{"Hello from Go", "127.0.0.1:50051"}[min(len(os.Args)-1, 2):]...)
	if err := run(arguments[0], arguments[1]); err != nil {
		log.Fatal(err)
	}
}
