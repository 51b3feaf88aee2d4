package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"

	turnwire "github.com/turnwire/turnwire/clients/go"
)

const help = `turnwire-terminal is Turnwire in a terminal: sessions, conversations, approvals.

Usage: turnwire-terminal [options]

  --address HOST:PORT  the server (TURNWIRE_TARGET; 127.0.0.1:50051 unless set)
  --session ID         the session to open first
  --token-file FILE    a file with the token to present (TURNWIRE_TOKEN_FILE). TURNWIRE_TOKEN
                       has the token itself; a token is no option, because others see options
  --tls                encrypt; the authorities are the system's (TURNWIRE_TLS)
  --tls-ca FILE        encrypt; the authorities of the server's certificate, in PEM (TURNWIRE_CA)
  --cert FILE          the client's certificate, in PEM (TURNWIRE_CERT)
  --key FILE           its key, in PEM (TURNWIRE_KEY)
  --tenant NAME        the tenant to act for, as an admin (TURNWIRE_TENANT)
  --version            print the version and end

Keys are listed by F1. Exit codes: 0 left, 1 the server cannot be reached or used, 2 wrong
options, 3 no terminal.
`

// options are what the command line and the environment say. Options come before variables.
type options struct {
	address string
	session string
	token   string
	tls     bool
	ca      string
	cert    string
	key     string
	tenant  string
	version bool
}

// parse reads the command line and the environment. It never repeats a token.
func parse(arguments []string, environment func(string) string, out io.Writer) (*options, error) {
	var o options
	var tokenFile string
	flags := flag.NewFlagSet("turnwire-terminal", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	text := func(to *string, name, variable, fallback string) {
		value := environment(variable)
		if variable == "" || value == "" {
			value = fallback
		}
		flags.StringVar(to, name, value, "")
	}
	text(&o.address, "address", "TURNWIRE_TARGET", "127.0.0.1:50051")
	text(&o.session, "session", "", "")
	text(&tokenFile, "token-file", "TURNWIRE_TOKEN_FILE", "")
	text(&o.ca, "tls-ca", "TURNWIRE_CA", "")
	text(&o.cert, "cert", "TURNWIRE_CERT", "")
	text(&o.key, "key", "TURNWIRE_KEY", "")
	text(&o.tenant, "tenant", "TURNWIRE_TENANT", "")
	encrypt, err := truth(environment("TURNWIRE_TLS"))
	if err != nil {
		return nil, fmt.Errorf("TURNWIRE_TLS: %w", err)
	}
	flags.BoolVar(&o.tls, "tls", encrypt, "")
	flags.BoolVar(&o.version, "version", false, "")
	if err := flags.Parse(arguments); errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(out, help)
		return nil, flag.ErrHelp
	} else if err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("there is no argument %q; turnwire --help lists the options", flags.Arg(0))
	}
	return &o, o.readToken(tokenFile, environment("TURNWIRE_TOKEN"))
}

// truth reads a variable that switches something on.
func truth(value string) (bool, error) {
	switch strings.ToLower(value) {
	case "", "no", "n", "off":
		return false, nil
	case "yes", "y", "on":
		return true, nil
	}
	on, err := strconv.ParseBool(strings.ToLower(value))
	if err != nil {
		return false, fmt.Errorf("%q is neither true nor false", value)
	}
	return on, nil
}

// readToken takes the token of the file, or of the variable.
func (o *options) readToken(file, variable string) error {
	o.token = variable
	if file != "" && variable == "" {
		content, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("--token-file: %w", err)
		}
		o.token = strings.TrimSpace(string(content))
	}
	for _, r := range o.token {
		if r > unicode.MaxASCII || !unicode.IsPrint(r) {
			return errors.New("the token has characters that no token has")
		}
	}
	return nil
}

// dial makes the client. Nothing is sent yet.
func (o *options) dial() (*turnwire.Client, error) {
	var settings []turnwire.Option
	if o.tls || o.ca != "" || o.cert != "" || o.key != "" {
		encryption, err := o.encryption()
		if err != nil {
			return nil, err
		}
		settings = append(settings, turnwire.WithTLS(encryption))
	}
	if o.token != "" {
		settings = append(settings, turnwire.WithToken(o.token))
	}
	if o.tenant != "" {
		settings = append(settings, turnwire.WithTenant(o.tenant))
	}
	return turnwire.Dial(o.address, settings...)
}

// encryption reads the files of TLS.
func (o *options) encryption() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.ca != "" {
		content, err := os.ReadFile(o.ca)
		if err != nil {
			return nil, fmt.Errorf("--tls-ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(content) {
			return nil, fmt.Errorf("--tls-ca: %s has no certificate in PEM", o.ca)
		}
	}
	if (o.cert == "") != (o.key == "") {
		return nil, errors.New("--cert and --key go together")
	}
	if o.cert != "" {
		pair, err := tls.LoadX509KeyPair(o.cert, o.key)
		if err != nil {
			return nil, fmt.Errorf("--cert and --key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
