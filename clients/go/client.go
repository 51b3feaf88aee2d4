package turnwire

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/stats"

	pb "github.com/turnwire/turnwire/clients/go/opencode"
)

// Client is a connection to a server. Its fields call the services of the contract; its methods do what is asked most. It is
// safe for concurrent use. Make it with [Dial] and end it with [Client.Close].
type Client struct {
	Agents      pb.AgentServiceClient
	Events      pb.EventServiceClient
	Files       pb.FileServiceClient
	Messages    pb.MessageServiceClient
	Permissions pb.PermissionServiceClient
	Providers   pb.ProviderServiceClient
	Questions   pb.QuestionServiceClient
	Search      pb.SearchServiceClient
	Server      pb.ServerServiceClient
	Sessions    pb.SessionServiceClient
	Tools       pb.ToolServiceClient
	Transfer    pb.TransferServiceClient
	Turns       pb.TurnServiceClient
	Uploads     pb.UploadServiceClient
	Usage       pb.UsageServiceClient

	connection *grpc.ClientConn
	settings   settings
	reached    atomic.Bool // a connection was opened at least once
}

// Option changes what [Dial] does.
type Option func(*settings)

type settings struct {
	tls           *tls.Config
	token         func(context.Context) (string, error)
	renewable     bool // token may answer another one the next time
	insecureToken bool
	tenant        string
	retryFor      time.Duration
	silence       time.Duration
	patient       bool
	maxBytes      int
	dial          []grpc.DialOption
}

const (
	// defaultMaxBytes lets a snapshot of the largest message through (32 MiB, and what protobuf adds).
	defaultMaxBytes = 64 << 20
	defaultRetryFor = time.Minute
	// defaultSilence is three heartbeats of the server.
	defaultSilence = 45 * time.Second
)

// WithToken signs every call with a bearer token. [Dial] refuses it without TLS unless the address is of this machine.
func WithToken(token string) Option {
	return func(s *settings) {
		s.token = func(context.Context) (string, error) { return token, nil }
		s.renewable = false
	}
}

// WithTokenSource signs every call with the bearer token that source returns, which must be safe for concurrent use and
// should keep a token as long as it is valid. A watch whose token has ended asks for another one and goes on.
func WithTokenSource(source func(context.Context) (string, error)) Option {
	return func(s *settings) { s.token, s.renewable = source, true }
}

// WithInsecureToken lets a token travel without TLS to another machine. Use it only where the network itself is private.
func WithInsecureToken() Option {
	return func(s *settings) { s.insecureToken = true }
}

// WithTLS encrypts the connection. A nil configuration trusts the authorities of the system; one with certificates signs in
// with them.
func WithTLS(config *tls.Config) Option {
	return func(s *settings) {
		if config == nil {
			config = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		s.tls = config.Clone()
	}
}

// WithTenant acts for a tenant. Only an admin may name one.
func WithTenant(tenant string) Option {
	return func(s *settings) { s.tenant = tenant }
}

// WithRetryTime sets how long a call is repeated before its error is returned: a minute unless set, 0 never repeats. The
// context of a call may end it earlier. Watches go on until their context ends.
func WithRetryTime(limit time.Duration) Option {
	return func(s *settings) { s.retryFor = limit }
}

// WithWaitForServer waits for a server that was never there too. Without it, calls fail at once as long as nobody has
// answered at the address, so that a wrong address is noticed.
func WithWaitForServer() Option {
	return func(s *settings) { s.patient = true }
}

// WithMaxMessageBytes sets the size of the largest answer that is taken: 64 MiB unless set, which every message of a server
// with default limits fits into.
func WithMaxMessageBytes(limit int) Option {
	return func(s *settings) { s.maxBytes = limit }
}

// WithDialOptions passes options to gRPC, such as interceptors or a proxy of its own.
func WithDialOptions(options ...grpc.DialOption) Option {
	return func(s *settings) { s.dial = append(s.dial, options...) }
}

// Dial makes a client for the server at an address such as "127.0.0.1:50051", "dns:///chat.example.com:443" or
// "unix:///run/turnwire.sock". It returns at once: the connection is opened with the first call, and opened again whenever
// it is needed. An error means that address or options are wrong.
func Dial(address string, options ...Option) (*Client, error) {
	set := settings{retryFor: defaultRetryFor, silence: defaultSilence, maxBytes: defaultMaxBytes}
	for _, option := range options {
		option(&set)
	}
	client := &Client{settings: set}
	dial, err := client.dialOptions(address)
	if err != nil {
		return nil, err
	}
	if client.connection, err = grpc.NewClient(address, dial...); err != nil {
		return nil, fmt.Errorf("turnwire: %w", err)
	}
	client.openServices()
	return client, nil
}

// Close ends the connection and every call that is on its way.
func (c *Client) Close() error { return c.connection.Close() }

// Conn returns the connection, for services that the client has no field for.
func (c *Client) Conn() grpc.ClientConnInterface { return c.connection }

func (c *Client) openServices() {
	c.Agents = pb.NewAgentServiceClient(c.connection)
	c.Events = pb.NewEventServiceClient(c.connection)
	c.Files = pb.NewFileServiceClient(c.connection)
	c.Messages = pb.NewMessageServiceClient(c.connection)
	c.Permissions = pb.NewPermissionServiceClient(c.connection)
	c.Providers = pb.NewProviderServiceClient(c.connection)
	c.Questions = pb.NewQuestionServiceClient(c.connection)
	c.Search = pb.NewSearchServiceClient(c.connection)
	c.Server = pb.NewServerServiceClient(c.connection)
	c.Sessions = pb.NewSessionServiceClient(c.connection)
	c.Tools = pb.NewToolServiceClient(c.connection)
	c.Transfer = pb.NewTransferServiceClient(c.connection)
	c.Turns = pb.NewTurnServiceClient(c.connection)
	c.Uploads = pb.NewUploadServiceClient(c.connection)
	c.Usage = pb.NewUsageServiceClient(c.connection)
}

func (c *Client) dialOptions(address string) ([]grpc.DialOption, error) {
	transport := insecure.NewCredentials()
	if c.settings.tls != nil {
		transport = credentials.NewTLS(c.settings.tls)
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(c.settings.maxBytes)),
		grpc.WithChainUnaryInterceptor(c.unary),
		grpc.WithChainStreamInterceptor(c.stream),
		grpc.WithStatsHandler(connections{c}),
		// gRPC alone would wait for up to two minutes before it looks for a server that was restarted.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second},
			MinConnectTimeout: 10 * time.Second,
		}),
		// Finds connections that are dead without a word, such as those of a laptop that slept.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 10 * time.Second}),
	}
	if c.settings.token != nil {
		if c.settings.tls == nil && !c.settings.insecureToken && !isLocal(address) {
			return nil, errors.New("turnwire: a token needs WithTLS, or WithInsecureToken where the network is private")
		}
		options = append(options, grpc.WithPerRPCCredentials(bearer{c.settings.token}))
	}
	return append(options, c.settings.dial...), nil
}

// isLocal reports whether an address is one of this machine.
func isLocal(address string) bool {
	if strings.HasPrefix(address, "unix:") || strings.HasPrefix(address, "unix-abstract:") {
		return true
	}
	if _, after, found := strings.Cut(address, ":///"); found {
		address = after
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// bearer adds the token to a call.
type bearer struct {
	source func(context.Context) (string, error)
}

func (b bearer) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	token, err := b.source(ctx)
	if err != nil {
		return nil, err
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

// RequireTransportSecurity is false because Dial has looked at the address.
func (b bearer) RequireTransportSecurity() bool { return false }

// connections notes that a connection was opened.
type connections struct{ client *Client }

func (h connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (h connections) HandleRPC(context.Context, stats.RPCStats)                         {}
func (h connections) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (h connections) HandleConn(_ context.Context, event stats.ConnStats) {
	if _, ok := event.(*stats.ConnBegin); ok {
		h.client.reached.Store(true)
	}
}
