import GRPCCore
import GRPCNIOTransportHTTP2Posix

/// A client of one Turnwire server.
///
/// It keeps one connection, which opens with the first call and opens again after a break. It may be used from any task;
/// streams and calls share the connection. Close it when it is not needed any more.
///
/// ```swift
/// let client = try Client.connect(to: "127.0.0.1:50051")
/// let accepted = try await client.send("Hello")
/// for try await update in client.watch(accepted) {
///     print(update.conversation.messages.last?.text ?? "")
///     if update.turnEnded(accepted.turnID) != nil { break }
/// }
/// await client.close()
/// ```
///
/// What it has no method for is a call of a generated service, such as `client.sessions.listSessions(...)`. These throw
/// `RPCError`, from which `TurnwireError` can be made, and are not tried again unless `call` does it.
public final class Client: Sendable {
    /// Sessions: create, list, change, fork, delete.
    public let sessions: Opencode_Session_SessionService.Client<HTTP2ClientTransport.Posix>
    /// Messages: send, list, abort.
    public let messages: Opencode_Message_MessageService.Client<HTTP2ClientTransport.Posix>
    /// Events of sessions.
    public let events: Opencode_Event_EventService.Client<HTTP2ClientTransport.Posix>
    /// Turns, the queue and alternatives.
    public let turns: Opencode_Turn_TurnService.Client<HTTP2ClientTransport.Posix>
    /// Tools, and the calls of tools.
    public let tools: Opencode_Tool_ToolService.Client<HTTP2ClientTransport.Posix>
    /// Permission requests.
    public let permissions: Opencode_Tool_PermissionService.Client<HTTP2ClientTransport.Posix>
    /// Questions of tools.
    public let questions: Opencode_Question_QuestionService.Client<HTTP2ClientTransport.Posix>
    /// What the server is and can do.
    public let server: Opencode_Server_ServerService.Client<HTTP2ClientTransport.Posix>
    /// The client of gRPC, for further services: `Opencode_File_FileService.Client(wrapping: client.grpc)`.
    public let grpc: GRPCClient<HTTP2ClientTransport.Posix>
    /// How calls are tried again.
    public let retries: RetryPolicy

    let credentials: Credentials?
    private let runner: Task<Void, Never>

    /// Makes a client. Returns at once: the first call shows whether the server is there.
    ///
    /// - Parameters:
    ///   - address: "host:port", "1.2.3.4:port", "[::1]:port" or "unix:/path".
    ///   - security: TLS or none.
    ///   - credentials: The token that is sent with each call; nil for none. Without TLS it can be read on the way.
    ///   - retries: How calls are tried again.
    /// - Throws: TurnwireError (INVALID_ARGUMENT) for an address or certificates that cannot be used.
    public static func connect(
        to address: String, security: Security = .plaintext, credentials: Credentials? = nil,
        retries: RetryPolicy = RetryPolicy()
    ) throws -> Client {
        Client(try Transport.turnwire(address, security, retries), credentials, retries)
    }

    private init(_ transport: Transport, _ credentials: Credentials?, _ retries: RetryPolicy) {
        let grpc = GRPCClient(transport: transport, interceptors: credentials.map { [TokenInterceptor(credentials: $0)] } ?? [])
        self.grpc = grpc
        self.credentials = credentials
        self.retries = retries
        sessions = .init(wrapping: grpc)
        messages = .init(wrapping: grpc)
        events = .init(wrapping: grpc)
        turns = .init(wrapping: grpc)
        tools = .init(wrapping: grpc)
        permissions = .init(wrapping: grpc)
        questions = .init(wrapping: grpc)
        server = .init(wrapping: grpc)
        // Ends in close() or with the client. What it throws is told to each call as well.
        runner = Task { try? await grpc.runConnections() }
    }

    deinit { runner.cancel() }

    /// Closes the connection. Calls and watches that still run end with an error. May be called again.
    public func close() async {
        grpc.beginGracefulShutdown()
        runner.cancel()
        await runner.value
    }

    /// Asks what the server is, can do and limits, and who the caller is. Needs no credentials.
    public func serverInfo() async throws -> Opencode_Server_GetServerInfoResponse {
        try await call { try await self.server.getServerInfo(.init(), options: $0) }
    }

    /// Makes a call, and makes it again as `retries` says. Use it only for calls that may be made twice: those that read,
    /// and those whose request has a `requestID`.
    ///
    /// - Parameter body: Makes the call once with the options that it is given. They have the time limit of one try, and
    ///   let answers have 64 MiB.
    /// - Throws: TurnwireError; CancellationError when the task is cancelled.
    public func call<Answer: Sendable>(
        _ body: @Sendable (CallOptions) async throws -> Answer
    ) async throws -> Answer {
        try await call(patience: retries.patience, body)
    }

    func call<Answer: Sendable>(
        patience: Duration?, _ body: @Sendable (CallOptions) async throws -> Answer
    ) async throws -> Answer {
        var backoff = Backoff(retries, patience: patience)
        while true {
            do {
                return try await body(options(timeout: retries.attemptTimeout))
            } catch {
                try Task.checkCancellation()
                let failure = TurnwireError(any: error)
                guard failure.isTransient, !backoff.isHopeless else { throw failure }
                try await backoff.wait(after: failure)
            }
        }
    }

    /// The limit of messages is raised: a message may have 32 MiB, and its list or snapshot shows all of it. As of
    /// grpc-swift-nio-transport 2.9 it is `maxRequestMessageBytes` that limits answers too.
    func options(timeout: Duration?) -> CallOptions {
        var options = CallOptions.defaults
        options.timeout = timeout
        options.maxRequestMessageBytes = 64 << 20
        options.maxResponseMessageBytes = 64 << 20
        return options
    }
}
