package turnwire_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	turnwire "github.com/turnwire/turnwire/clients/go"
	pb "github.com/turnwire/turnwire/clients/go/opencode"
)

// These examples run against the server of the tests, whose model repeats what it is told.

func address() string {
	if address := os.Getenv("TURNWIRE_ADDRESS"); address != "" {
		return address
	}
	return "127.0.0.1:50051"
}

func Example() {
	client, err := turnwire.Dial("127.0.0.1:50051")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	answer, err := client.Ask(context.Background(), "", "Hello from Go")
	if err != nil {
		log.Fatal(err)
	}
	for text, err := range answer.Text() {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(text)
	}
	fmt.Println()
}

// A function is a tool: the model reads its description and the schema of its argument.
func ExampleNewTool() {
	client, err := turnwire.Dial(address())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	type question struct {
		City string `json:"city" description:"The city, without its country."`
	}
	weather := turnwire.NewTool("weather", "Tells the weather of a city.",
		func(ctx context.Context, in question) (string, error) { return "It rains in " + in.City + ".", nil })
	answer, err := client.Ask(context.Background(), "", "How is the weather in Utrecht?", turnwire.WithTools(weather))
	if err != nil {
		log.Fatal(err)
	}
	text, err := answer.All()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(text)
}

// A watch holds the conversation. It goes on by itself when the connection breaks.
func ExampleClient_Watch() {
	client, err := turnwire.Dial(address())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()
	sent, err := client.Send(ctx, "", "Hello")
	if err != nil {
		log.Fatal(err)
	}
	for update, err := range client.Watch(ctx, sent.GetSessionId()) {
		if err != nil {
			log.Fatal(err)
		}
		if update.Lost != nil {
			log.Print("offline: ", update.Lost)
		}
		if update.More {
			continue // draw once for all that came together
		}
		for _, message := range update.Conversation.Messages() {
			fmt.Println(message.GetType(), turnwire.TextOf(message))
		}
	}
}

// Errors have a reason, which never changes once it was sent.
func ExampleHasReason() {
	client, err := turnwire.Dial(address())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	_, err = client.Send(context.Background(), "ses_none", "Hello")
	var failed *turnwire.Error
	switch {
	case turnwire.HasReason(err, pb.ErrorReason_SESSION_NOT_FOUND):
		fmt.Println("That session is gone.")
	case errors.As(err, &failed):
		fmt.Println(failed.Code, failed.Reason, failed.Fields)
	}
}
