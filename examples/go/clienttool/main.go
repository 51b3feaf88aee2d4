// Lets the model ask you a question: go run ./clienttool [TEXT [HOST:PORT]]. The tool ask_user runs here, in the client.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"strings"

	turnwire "github.com/turnwire/turnwire/clients/go"
)

// defaultText ends with a line that makes the offline model call the tool.
const defaultText = `Ask me for my name with ask_user, then greet me.
/tool ask_user {"question": "What is your name?"}`

type arguments struct {
	Question string `json:"question"`
}

var keyboard = bufio.NewReader(os.Stdin)

func ask(_ context.Context, in arguments) (string, error) {
	fmt.Print(in.Question, " ")
	line, err := keyboard.ReadString('\n')
	return strings.TrimSpace(line), err
}

func run(text, target string) error {
	client, err := turnwire.Dial(target)
	if err != nil {
		return err
	}
	defer client.Close()
	askUser := turnwire.NewTool("ask_user", "Asks the user a question.", ask)
	answer, err := client.Ask(context.Background(), "", text, turnwire.WithTools(askUser))
	if err != nil {
		return err
	}
	for update, err := range answer.Updates() {
		if err != nil {
			return err
		}
		if words := update.Event.GetPartFinished().GetPart().GetText().GetText(); words != "" {
			fmt.Println(words)
		}
	}
	return answer.Err()
}

func main() {
	arguments := append(os.Args[1:], []string{defaultText, "127.0.0.1:50051"}[min(len(os.Args)-1, 2):]...)
	if err := run(arguments[0], arguments[1]); err != nil {
		log.Fatal(err)
	}
}
