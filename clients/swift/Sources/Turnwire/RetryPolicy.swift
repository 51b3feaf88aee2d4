import GRPCCore

/// How calls and watches are tried again.
///
/// A call is tried again after UNAVAILABLE, after a try that took too long, and after RESOURCE_EXHAUSTED with a delay
/// of the server. The pause is at least the server's delay; it grows with each try in a row and varies by chance, so that
/// many clients do not come back at once.
public struct RetryPolicy: Sendable, Hashable {
    /// The first pause. 200 milliseconds unless changed.
    public var initialDelay: Duration = .milliseconds(200)
    /// The longest pause that the client chooses itself. 5 seconds unless changed.
    public var maximumDelay: Duration = .seconds(5)
    /// How long one try of a call may take. 30 seconds unless changed; nil for no limit.
    public var attemptTimeout: Duration? = .seconds(30)
    /// How long a call is tried again, from its first failure on. 20 seconds unless changed; nil for ever. Watches go on
    /// for ever.
    public var patience: Duration? = .seconds(20)
    /// How long a connection may be silent while something waits for it: then it is asked whether it lives, and closed
    /// when half of that time later no answer has come. 20 seconds unless changed, for the server sends each watch something
    /// every 15 seconds.
    public var silence: Duration = .seconds(20)

    /// The policy with what is said above.
    public init() {}
}

/// The pauses between the tries of one call or one watch.
struct Backoff {
    private let policy: RetryPolicy
    private let patience: Duration?
    private var failures = 0
    private var oddFailures = 0
    private var giveUpAt: ContinuousClock.Instant?

    init(_ policy: RetryPolicy, patience: Duration?) {
        self.policy = policy
        self.patience = patience
    }

    /// How many tries have failed in a row.
    var failuresInARow: Int { failures }

    /// Too many tries in a row have failed in a way that is neither a server that is away nor an answer of one.
    var isHopeless: Bool { oddFailures >= 8 }

    /// Notes that a try went well.
    mutating func reset() {
        failures = 0
        oddFailures = 0
        giveUpAt = nil
    }

    /// Waits before the next try.
    ///
    /// - Throws: the error, when the next try would come too late; CancellationError.
    mutating func wait(after error: TurnwireError) async throws {
        let now = ContinuousClock.now
        if giveUpAt == nil, let patience { giveUpAt = now + patience }
        oddFailures = error.isOdd ? oddFailures + 1 : 0
        let pause = nextPause(atLeast: error.retryDelay)
        if let giveUpAt, now + pause > giveUpAt { throw error }
        try await Task.sleep(for: pause)
    }

    /// The pause: between half of the growing delay and all of it, and no shorter than the server asked for.
    private mutating func nextPause(atLeast asked: Duration?) -> Duration {
        let grown = policy.initialDelay * (1 << min(failures, 16))
        failures += 1
        let chosen = min(grown, policy.maximumDelay) * Double.random(in: 0.5...1)
        guard let asked, asked > .zero else { return chosen }
        return max(chosen, asked * Double.random(in: 1...1.1))
    }
}

extension TurnwireError {
    /// Another try of the same call can go well, and does no harm: the request has a name, or changes nothing twice.
    var isTransient: Bool {
        switch code {
        case .unavailable, .deadlineExceeded: true
        case .resourceExhausted: retryDelay != nil
        default: isOdd
        }
    }

    /// Something between client and server failed, and no server of Turnwire said this. It may pass, as a connection that
    /// breaks does, or come each time, as an answer does that is too large.
    var isOdd: Bool {
        reason.isEmpty && [.unknown, .internalError, .cancelled, .aborted].contains(code)
    }
}
