extension Client {
    /// Runs the calls of tools in a session until the session is deleted.
    ///
    /// It finds calls by watching, also those that were open before and those that come while the connection is down. Each
    /// call is run once by this method; after a restart of the program a call that has no result yet is run again. A call
    /// waits until a person has allowed it, and is left alone while another client has claimed it.
    ///
    /// - Parameters:
    ///   - tools: The tools. Calls of other names are left alone. Declare them with `send`, or keep them on the session.
    ///   - sessionID: The session.
    ///   - lease: Claims each call before it is run. Needed where several clients have the tools; nil claims nothing.
    ///   - limit: How many calls run at once. Others wait.
    /// - Throws: What a watch throws: TurnwireError; CancellationError. Then all functions that run are cancelled.
    public func serve(
        _ tools: [Tool], in sessionID: String, lease: ToolLease? = nil, limit: Int = 16
    ) async throws {
        let byName = Dictionary(tools.map { ($0.definition.name, $0) }, uniquingKeysWith: { $1 })
        let bench = Bench(limit: max(limit, 1))
        var running: [String: Task<Void, Never>] = [:]
        defer { for task in running.values { task.cancel() } }
        for try await update in watch(sessionID) {
            for call in update.calls {
                if call.isSettled {
                    running.removeValue(forKey: call.id)?.cancel()
                } else if call.isRunnable, running[call.id] == nil, let tool = byName[call.name] {
                    let worker = ToolWorker(
                        client: self, tool: tool, call: ToolCall(sessionID: sessionID, state: call), lease: lease
                    )
                    running[call.id] = Task { await bench.run { await worker.work() } }
                }
            }
        }
    }
}

extension Update {
    /// The calls that can have changed with this update.
    fileprivate var calls: [Opencode_Tool_ToolCallState] {
        switch event?.kind {
        case .toolCallUpdated(let update)?: [update.state]
        case .partFinished(let end)?: conversation[end.messageID]?.toolCalls ?? []
        case .messageSnapshot(let snapshot)?: conversation[snapshot.message.messageID]?.toolCalls ?? []
        case .messageAdded?, .partDelta?, .partStarted?, .toolLog?, .heartbeat?: []
        case nil, .conversationChanged?, .caughtUp?: conversation.messages.flatMap(\.toolCalls)
        default: []
        }
    }
}

extension Opencode_Tool_ToolCallState {
    /// It may be run now: the answer that holds it has ended, nobody must allow it first, and nobody else runs it.
    fileprivate var isRunnable: Bool {
        status == "pending" && hasStartedAt && !hasPermissionID && !hasLease
    }

    /// It has a result, or gets none any more.
    fileprivate var isSettled: Bool {
        ["success", "error", "cancelled"].contains(status)
    }
}

/// Lets so many functions run at once; the others wait in their order.
actor Bench {
    private var free: Int
    private var waiting: [CheckedContinuation<Void, Never>] = []

    init(limit: Int) {
        free = limit
    }

    nonisolated func run(_ body: @Sendable () async -> Void) async {
        await sit()
        if !Task.isCancelled { await body() }
        await stand()
    }

    private func sit() async {
        if free > 0 {
            free -= 1
        } else {
            await withCheckedContinuation { waiting.append($0) }
        }
    }

    private func stand() {
        if waiting.isEmpty {
            free += 1
        } else {
            waiting.removeFirst().resume()  // it takes the place
        }
    }
}
