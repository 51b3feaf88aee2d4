// Sends a message and prints the answer while it comes: go run . [TEXT [HOST:PORT]]
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	turnwire "github.com/turnwire/turnwire/clients/go"
)

func run(text, target string) error {
	client, err := turnwire.Dial(target)
	if err != nil {
		return err
	}
	defer client.Close()
	answer, err := client.Ask(context.Background(), "", text)
	if err != nil {
		return err
	}
	for piece, err := range answer.Text() {
		if err != nil {
			return err
		}
		fmt.Print(piece)
	}
	fmt.Println()
	return nil
}

func main() {
	arguments := append(os.Args[1:], []string{"Hello from Go", "127.0.0.1:50051"}[min(len(os.Args)-1, 2):]...)
	if err := run(arguments[0], arguments[1]); err != nil {
		log.Fatal(err)
	}
}
