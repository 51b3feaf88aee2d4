// Package turnwire is the Go client of Turnwire, a server for conversations with language models.
//
// [Dial] opens a [Client]. [Client.Ask] sends a message and streams the answer; [Client.Send] only sends it, safely: a message
// that was sent twice is stored once. [Client.Watch] follows a session and holds its [Conversation], which is always what the
// server stores. A watch goes on by itself after a broken connection or a restart of the server, without a gap and without
// a repeated byte.
//
//	client, err := turnwire.Dial("127.0.0.1:50051")
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//	answer, err := client.Ask(ctx, "", "Hello from Go")
//	if err != nil {
//		return err
//	}
//	for text, err := range answer.Text() {
//		if err != nil {
//			return err
//		}
//		fmt.Print(text)
//	}
//
// # The contract
//
// Package [github.com/turnwire/turnwire/clients/go/opencode] has the messages and services of the contract, generated from its
// files. The fields of a [Client] call the services. What this package adds to them holds for these calls too: every error is
// an [*Error], and a call that may be repeated is repeated when the server asks for it or the connection breaks.
//
// # Messages are shared
//
// Messages of the contract that this package returns are not copied for each caller. Do not change them. They do not change
// either: a conversation that goes on makes new ones, so a message can be kept and read by any goroutine.
//
// # Tools
//
// A function becomes a [Tool] with [NewTool], which derives the JSON Schema of its arguments. [WithTools] lets the model call
// it while [Client.Ask] runs; [Client.ServeTools] runs tools for as long as a program lives.
package turnwire
