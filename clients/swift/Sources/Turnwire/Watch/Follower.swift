import GRPCCore

/// The state of one watch: what is held, what has come and was not told yet, and the stream that is open.
///
/// Used by one task at a time, as iterators are. The stream ends with the follower.
final class Follower {
    private let client: Client
    private let sessionID: String
    private var conversation: Conversation
    private var stream: EventStream?
    /// The batch that came last, and how much of it was told.
    private var batch = Opencode_Event_WatchEventsResponse()
    private var told = 0
    /// The list of messages must be read before the next stream.
    private var mustList: Bool
    /// Events are taken in and not told until everything is there: the first caught_up behind a list.
    private var isSilent = false
    /// What asked for the list; told with the conversation that was read.
    private var reason: Opencode_Event_SessionEvent?
    private var backoff: Backoff
    /// How many streams in a row asked to read anew before they had caught up.
    private var rereads = 0

    init(_ client: Client, _ sessionID: String, _ start: Conversation?) {
        self.client = client
        self.sessionID = sessionID
        conversation = start ?? Conversation()
        mustList = start == nil
        backoff = Backoff(client.retries, patience: nil)
    }

    deinit { stream?.close() }

    func next() async throws -> Update? {
        while !conversation.isDeleted {
            if let update = takeIn() { return update }
            try Task.checkCancellation()
            do {
                try await receive()
            } catch {
                try await recover(from: error)
            }
        }
        stream?.close()
        return nil
    }

    /// Takes in events of the batch until there is something to tell. nil: the next batch is needed.
    private func takeIn() -> Update? {
        while told < batch.events.count {
            let event = batch.events[told]
            told += 1
            if event.sequence > 0, event.sequence <= conversation.sequence { continue }  // told before
            conversation.apply(event)
            if told == batch.events.count { conversation.moved(to: batch.resumeToken) }
            if conversation.needsReread {
                readAnew(because: event)
            } else if !isSilent || conversation.isDeleted {
                return Update(event: event, conversation: conversation)
            } else if case .caughtUp? = event.kind {
                isSilent = false
                rereads = 0
                defer { reason = nil }
                return Update(event: reason, conversation: conversation)
            }
        }
        if batch.events.isEmpty { conversation.moved(to: batch.resumeToken) }
        return nil
    }

    private func readAnew(because event: Opencode_Event_SessionEvent) {
        stream?.close()
        stream = nil
        batch = .init()
        told = 0
        mustList = true
        rereads += 1
        if case .conversationChanged? = event.kind { reason = event }
    }

    /// Waits for the next batch; opens the stream where none is open.
    private func receive() async throws {
        if mustList { try await list() }
        let stream = try self.stream ?? open()
        self.stream = stream
        guard let next = try await stream.next() else {
            throw TurnwireError(code: .unavailable, message: "the stream of events ended")
        }
        backoff.reset()
        batch = next
        told = 0
    }

    private func list() async throws {
        // A server that asks again and again is not asked without a pause.
        if rereads > 1 { try await backoff.wait(after: TurnwireError(code: .unavailable, message: "read anew")) }
        conversation = try await client.conversation(of: sessionID, patience: nil)
        mustList = false
        isSilent = true
    }

    private func open() throws -> EventStream {
        let request = Opencode_Event_WatchEventsRequest.with {
            $0.sessionID = sessionID
            if !conversation.resumeToken.isEmpty { $0.resumeToken = conversation.resumeToken }
        }
        return EventStream(client, request)
    }

    /// Waits until the next try after a break; throws what no further try mends.
    private func recover(from error: any Error) async throws {
        stream?.close()
        stream = nil
        batch = .init()
        told = 0
        try Task.checkCancellation()
        let failure = TurnwireError(any: error)
        // A token may have ended: the provider is asked for a new one, once.
        let isNewToken = failure.code == .unauthenticated && backoff.failuresInARow == 0
        let mayPass = failure.isTransient && !backoff.isHopeless
        let mayGoOn = mayPass || (isNewToken && client.credentials?.changes == true)
        guard mayGoOn else { throw failure }
        try await backoff.wait(after: failure)
    }
}
