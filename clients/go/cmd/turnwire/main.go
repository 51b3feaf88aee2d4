// Command turnwire is Turnwire in a terminal: sessions, live conversations, approvals and what they cost.
//
// It is a client like any other, on the Go client. docs/guides/terminal.md tells how it is used.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/term"

	turnwire "github.com/turnwire/turnwire/clients/go"
	pb "github.com/turnwire/turnwire/clients/go/opencode"

	"github.com/turnwire/turnwire/clients/go/cmd/turnwire/internal/remote"
	"github.com/turnwire/turnwire/clients/go/cmd/turnwire/internal/text"
	"github.com/turnwire/turnwire/clients/go/cmd/turnwire/internal/ui"
)

// version is set by the linker of a release: -ldflags "-X main.version=1.2.3".
var version = "development"

// Exit codes. Code 2 is also that of package flag.
const (
	left       = 0
	noServer   = 1
	wrongUsage = 2
	noTerminal = 3
)

const (
	// greetingTime is how long the server may take for its first answer.
	greetingTime = 10 * time.Second
	// framesPerSecond is the most that the terminal is written.
	framesPerSecond = 30
)

func main() {
	os.Exit(run(os.Args[1:]))
}

// run is the program; it returns the exit code.
func run(arguments []string) int {
	set, err := parse(arguments, os.Getenv, os.Stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return left
	case err != nil:
		return fail(wrongUsage, err)
	case set.version:
		fmt.Println("turnwire-terminal", version)
		return left
	}
	client, err := set.dial()
	if err != nil {
		return fail(wrongUsage, err)
	}
	defer client.Close()
	if !term.IsTerminal(os.Stdin.Fd()) || !term.IsTerminal(os.Stdout.Fd()) || os.Getenv("TERM") == "dumb" {
		return fail(noTerminal, errors.New("this is a program for a terminal; `turnwire chat` of the server works without one"))
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := greet(ctx, client, set.session); err != nil {
		return fail(noServer, fmt.Errorf("%s: %w", set.address, err))
	}
	screen := ui.New(ctx, remote.New(client), set.address, set.session)
	_, err = tea.NewProgram(screen, tea.WithContext(ctx), tea.WithFPS(framesPerSecond)).Run()
	if err != nil && !errors.Is(err, tea.ErrInterrupted) {
		return fail(noServer, err)
	}
	if id := screen.SessionID(); id != "" {
		fmt.Println(filepath.Base(os.Args[0]) + " --session " + text.Line(id)) // how to go on
	}
	return left
}

// greet asks the server what it is, and for the session, before the screen is taken: what is wrong is told in a line.
func greet(ctx context.Context, client *turnwire.Client, sessionID string) error {
	ctx, cancel := context.WithTimeout(ctx, greetingTime)
	defer cancel()
	if _, err := client.Server.GetServerInfo(ctx, &pb.GetServerInfoRequest{}); err != nil {
		return err
	}
	if sessionID == "" {
		_, err := client.Sessions.ListSessions(ctx, &pb.ListSessionsRequest{PageSize: 1})
		return err
	}
	_, err := client.Sessions.GetSession(ctx, &pb.GetSessionRequest{SessionId: sessionID})
	return err
}

// fail tells what is wrong in one line, and returns the exit code.
func fail(code int, err error) int {
	fmt.Fprintln(os.Stderr, "turnwire-terminal: "+text.Line(err.Error()))
	return code
}
