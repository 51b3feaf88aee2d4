import GRPCCore
import GRPCNIOTransportHTTP2Posix

/// How the connection to the server is secured.
public enum Security: Sendable {
    /// Not at all: for a server on the same machine or in the same private network.
    case plaintext
    /// TLS. The certificate of the server is always checked.
    case tls(TLS)

    /// TLS with the certificates that the system trusts.
    public static var tls: Security { .tls(TLS()) }
}

/// What TLS needs to know.
public struct TLS: Sendable, Hashable {
    /// A PEM file of the certificates to trust in place of the system's. nil: the system's.
    public var rootsPath: String?
    /// A PEM file of the certificate by which the client shows who it is, with those between it and its root. nil: none.
    public var certificatePath: String?
    /// A PEM file of the key of that certificate.
    public var keyPath: String?
    /// The name that the server's certificate must have, where it is not that of the address. nil: that of the address.
    public var serverName: String?

    /// Creates a configuration.
    public init(
        rootsPath: String? = nil, certificatePath: String? = nil, keyPath: String? = nil, serverName: String? = nil
    ) {
        self.rootsPath = rootsPath
        self.certificatePath = certificatePath
        self.keyPath = keyPath
        self.serverName = serverName
    }
}

/// What shows the server who calls: it is sent with each call.
public struct Credentials: Sendable {
    let token: @Sendable () async throws -> String
    /// A new token can be had when the server does not take one any more.
    let changes: Bool

    /// A token that stays the same.
    public static func token(_ token: String) -> Credentials {
        Credentials(token: { token }, changes: false)
    }

    /// A function that answers the token to send now. It is asked before each call, so it should keep what it has until
    /// that ends. After UNAUTHENTICATED a watch asks once more and goes on.
    public static func provider(_ token: @escaping @Sendable () async throws -> String) -> Credentials {
        Credentials(token: token, changes: true)
    }
}

/// Adds the token to each call.
struct TokenInterceptor: ClientInterceptor {
    let credentials: Credentials

    func intercept<Input: Sendable, Output: Sendable>(
        request: StreamingClientRequest<Input>,
        context: ClientContext,
        next: (StreamingClientRequest<Input>, ClientContext) async throws -> StreamingClientResponse<Output>
    ) async throws -> StreamingClientResponse<Output> {
        var request = request
        request.metadata.replaceOrAddString("Bearer \(try await credentials.token())", forKey: "authorization")
        return try await next(request, context)
    }
}

typealias Transport = HTTP2ClientTransport.Posix

extension Transport {
    /// Opens no connection yet.
    ///
    /// - Throws: TurnwireError (INVALID_ARGUMENT) for an address or certificates that cannot be used.
    static func turnwire(_ address: String, _ security: Security, _ retries: RetryPolicy) throws -> Transport {
        let config = Config.defaults {
            $0.backoff.initial = retries.initialDelay
            $0.backoff.max = retries.maximumDelay
            // A connection can die without a word; its streams would wait for ever, and calls would join them.
            $0.connection.keepalive = .init(
                time: retries.silence, timeout: retries.silence / 2, allowWithoutCalls: false
            )
            if case .tls(let tls) = security, let name = tls.serverName { $0.http2.authority = name }
        }
        do {
            return try Transport(
                target: try target(address), transportSecurity: TransportSecurity(security), config: config
            )
        } catch let error as TurnwireError {
            throw error
        } catch {
            throw TurnwireError(code: .invalidArgument, message: "\(error)")
        }
    }

    /// Reads "host:port", "1.2.3.4:port", "[::1]:port" or "unix:/path".
    static func target(_ address: String) throws -> any ResolvableTarget {
        if address.hasPrefix("unix:") {
            return .unixDomainSocket(path: String(address.dropFirst(5)))
        }
        guard let colon = address.lastIndex(of: ":"), let port = UInt16(address[address.index(after: colon)...]),
            colon > address.startIndex
        else {
            throw TurnwireError(code: .invalidArgument, message: "an address is HOST:PORT, not \(address)")
        }
        let host = address[..<colon]
        if host.hasPrefix("["), host.hasSuffix("]") {
            return .ipv6(address: String(host.dropFirst().dropLast()), port: Int(port))
        }
        let numbers = host.split(separator: ".", omittingEmptySubsequences: false)
        if numbers.count == 4, numbers.allSatisfy({ UInt8($0) != nil }) {
            return .ipv4(address: String(host), port: Int(port))
        }
        return .dns(host: String(host), port: Int(port))
    }
}

extension Transport.TransportSecurity {
    fileprivate init(_ security: Security) {
        switch security {
        case .plaintext:
            self = .plaintext
        case .tls(let tls):
            self = .tls { config in
                if let roots = tls.rootsPath { config.trustRoots = .certificates([.file(path: roots, format: .pem)]) }
                if let certificate = tls.certificatePath {
                    config.certificateChain = [.file(path: certificate, format: .pem)]
                }
                if let key = tls.keyPath { config.privateKey = .file(path: key, format: .pem) }
            }
        }
    }
}
