import Foundation
import GRPCCore
import Testing
import Turnwire

private let environment = ProcessInfo.processInfo.environment

/// Against a server with TLS that asks for a token: TURNWIRE_SECURE_ADDRESS, _ROOTS (a PEM file) and _TOKEN name them.
@Suite(.enabled(if: environment["TURNWIRE_SECURE_ADDRESS"] != nil, "needs TURNWIRE_SECURE_ADDRESS"))
struct SecureTests {
    private func code(roots: String?, _ credentials: Credentials?) async throws -> RPCError.Code? {
        var retries = RetryPolicy()
        retries.patience = .seconds(1)
        let client = try Client.connect(
            to: try #require(environment["TURNWIRE_SECURE_ADDRESS"]), security: .tls(TLS(rootsPath: roots)),
            credentials: credentials, retries: retries
        )
        var failure: RPCError.Code?
        do {
            try await client.send("Hello")
        } catch let error as TurnwireError {
            failure = error.code
        }
        await client.close()
        return failure
    }

    /// A token and the right roots let a message in; without a token, with a wrong one, or with other roots none comes in.
    @Test func tokensAndCertificatesAreChecked() async throws {
        let roots = environment["TURNWIRE_SECURE_ROOTS"]
        let token = environment["TURNWIRE_SECURE_TOKEN"] ?? ""
        #expect(try await code(roots: roots, .token(token)) == nil)
        #expect(try await code(roots: roots, .provider { token }) == nil)
        #expect(try await code(roots: roots, nil) == .unauthenticated)
        #expect(try await code(roots: roots, .token("wrong")) == .unauthenticated)
        #expect(try await code(roots: nil, .token(token)) == .unavailable)
    }
}
