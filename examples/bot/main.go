// Bot talks with a model that can call its functions: each line of the input is a message, each answer is printed as it comes.
//
//	go run . [HOST:PORT]
//
// The offline model calls a function when it is told to: /tool roll {"sides": 6}
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"

	turnwire "github.com/turnwire/turnwire/clients/go"
)

type dice struct {
	Sides int `json:"sides" description:"how many sides the dice has"`
}

func roll(_ context.Context, d dice) (string, error) {
	if d.Sides < 1 {
		return "", errors.New("a dice has at least one side") // the model reads this
	}
	return fmt.Sprintf("a dice with %d sides shows %d", d.Sides, 1+rand.IntN(d.Sides)), nil
}

func main() {
	address := "127.0.0.1:50051"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := talk(ctx, address); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func talk(ctx context.Context, address string) error {
	client, err := turnwire.Dial(address)
	if err != nil {
		return err
	}
	defer client.Close()
	tools := turnwire.WithTools(turnwire.NewTool("roll", "Rolls a dice.", roll))
	session := "" // the first message makes one
	fmt.Fprintln(os.Stderr, `Type a message. The offline model calls the function for: /tool roll {"sides": 6}`)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		answer, err := client.Ask(ctx, session, lines.Text(), tools, turnwire.WithSender("bot", "Bot"))
		if err != nil {
			return err
		}
		session = answer.Sent.GetSessionId()
		for text, err := range answer.Text() {
			if err != nil {
				return err
			}
			fmt.Print(text)
		}
		fmt.Println()
	}
	return nil
}
