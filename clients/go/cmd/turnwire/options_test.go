package main

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func variables(pairs map[string]string) func(string) string {
	return func(name string) string { return pairs[name] }
}

func TestOptionsComeBeforeVariables(t *testing.T) {
	environment := variables(map[string]string{
		"TURNWIRE_TARGET": "a:1", "TURNWIRE_TENANT": "acme", "TURNWIRE_TLS": "true", "TURNWIRE_TOKEN": "from variable",
	})
	o, err := parse([]string{"--address", "b:2", "--session", "ses_1"}, environment, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	if o.address != "b:2" || o.session != "ses_1" || o.tenant != "acme" || !o.tls || o.token != "from variable" {
		t.Errorf("got %+v", o)
	}
}

func TestTokenFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(" twt_abc\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := parse([]string{"--token-file", file}, variables(nil), &bytes.Buffer{})
	if err != nil || o.token != "twt_abc" {
		t.Errorf("got %+v, %v", o, err)
	}
}

func TestWrongOptions(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad")
	if err := os.WriteFile(bad, []byte("twt_\x1b[31mabc"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		arguments   []string
		environment map[string]string
	}{
		"a token on the command line": {[]string{"--token", "twt_abc"}, nil},
		"an argument":                 {[]string{"hello"}, nil},
		"no such file":                {[]string{"--token-file", "/nowhere"}, nil},
		"a token of other characters": {[]string{"--token-file", bad}, nil},
		"a variable":                  {nil, map[string]string{"TURNWIRE_TLS": "perhaps"}},
	} {
		if _, err := parse(c.arguments, variables(c.environment), &bytes.Buffer{}); err == nil || strings.Contains(err.Error(), "abc") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWhatCannotConnectIsSaidAtOnce(t *testing.T) {
	for _, o := range []options{
		{address: "chat.example.com:1", token: "t"}, {address: "x:1", cert: "only.pem"}, {address: "x:1", ca: "/nowhere"},
	} {
		if client, err := o.dial(); err == nil {
			client.Close()
			t.Errorf("%+v connects", o)
		}
	}
	local := options{address: "127.0.0.1:1", token: "t"}
	client, err := local.dial()
	if err != nil {
		t.Fatal(err)
	}
	client.Close()
}

func TestHelpNamesEveryOption(t *testing.T) {
	var out bytes.Buffer
	if _, err := parse([]string{"--help"}, variables(nil), &out); !errors.Is(err, flag.ErrHelp) {
		t.Fatal(err)
	}
	for _, name := range []string{
		"--address", "--session", "--token-file", "--tls ", "--tls-ca", "--cert", "--key", "--tenant", "--version",
	} {
		if !strings.Contains(out.String(), name) {
			t.Errorf("no %s", name)
		}
	}
}
