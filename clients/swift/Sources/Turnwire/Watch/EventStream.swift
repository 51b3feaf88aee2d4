import GRPCCore
import Synchronization

/// One open stream of events. A call of gRPC lives as long as the function that reads it; this one lives until it is
/// closed, so that its batches can be read one at a time.
final class EventStream {
    private typealias Batches = RPCAsyncSequence<Opencode_Event_WatchEventsResponse, any Error>

    private let opened: AsyncThrowingStream<Batches, any Error>
    private var iterator: Batches.AsyncIterator?
    private let call: Task<Void, Never>
    private let watchdog: Task<Void, Never>
    private let wait = Wait()

    /// Since when the reader waits; nil while it does something else.
    private final class Wait: Sendable {
        private let began = Mutex<ContinuousClock.Instant?>(nil)
        var since: ContinuousClock.Instant? {
            get { began.withLock { $0 } }
            set { began.withLock { $0 = newValue } }
        }
    }

    init(_ client: Client, _ request: Opencode_Event_WatchEventsRequest) {
        let (opened, hand) = AsyncThrowingStream<Batches, any Error>.makeStream()
        self.opened = opened
        // close() cancels the task, and the call with it.
        let call = Task {
            do {
                try await client.events.watchEvents(request, options: client.options(timeout: nil)) { response in
                    hand.yield(response.messages)
                    await untilCancelled()
                }
                hand.finish()
            } catch {
                hand.finish(throwing: error)
            }
        }
        self.call = call
        // The connection can live, with something between that lost the stream.
        watchdog = Task { [wait, silence = client.retries.silence * 2] in
            while !Task.isCancelled {
                let end = (wait.since ?? .now) + silence
                guard end > .now else { return call.cancel() }
                try? await Task.sleep(until: end, clock: .continuous)
            }
        }
    }

    deinit { close() }

    /// Waits for a batch. nil: the server ended the stream, or nothing came for too long.
    func next() async throws -> Opencode_Event_WatchEventsResponse? {
        wait.since = .now
        defer { wait.since = nil }
        if iterator == nil {
            var handed = opened.makeAsyncIterator()
            guard let batches = try await handed.next() else { return nil }
            iterator = batches.makeAsyncIterator()
        }
        return try await iterator?.next()
    }

    func close() {
        call.cancel()
        watchdog.cancel()
    }
}

private func untilCancelled() async {
    let (never, hand) = AsyncStream<Never>.makeStream()
    for await _ in never {}
    withExtendedLifetime(hand) {}
}
