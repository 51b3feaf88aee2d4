import Foundation
import GRPCCore
import Testing
import Turnwire

/// A server of the offline model, whose calls of `erase` ask a person: TURNWIRE_ADDRESS names it.
private let address = ProcessInfo.processInfo.environment["TURNWIRE_ADDRESS"]

private func connected<Answer>(_ body: (Client) async throws -> Answer) async throws -> Answer {
    let client = try Client.connect(to: try #require(address))
    do {
        let answer = try await body(client)
        await client.close()
        return answer
    } catch {
        await client.close()
        throw error
    }
}

/// The error of a call that must fail.
private func failure(_ body: () async throws -> Void) async throws -> TurnwireError {
    do {
        try await body()
    } catch let error as RPCError {
        return TurnwireError(error)
    } catch let error as TurnwireError {
        return error
    }
    throw TurnwireError(code: .unknown, message: "it did not fail")
}

/// Follows a message to the end of its turn.
private func answered(
    _ client: Client, _ accepted: Opencode_Message_SendMessageResponse,
    _ look: (Update) async throws -> Void = { _ in }
) async throws -> Conversation {
    for try await update in client.watch(accepted) {
        try await look(update)
        if update.turnEnded(accepted.turnID) != nil { return update.conversation }
    }
    throw TurnwireError(code: .unknown, message: "the watch ended before the turn")
}

@Suite(.enabled(if: address != nil, "needs a server: TURNWIRE_ADDRESS"), .timeLimit(.minutes(2)))
struct ServerTests {
    /// A quick answer comes without one delta, a slow one in many: the text is the same, and grows by bytes.
    @Test(arguments: ["één twee 世界 🌍", "/rate 100\néén twee 世界 🌍"])
    func answersAreWholeHoweverTheyCome(_ text: String) async throws {
        try await connected { client in
            var shown = Data()
            let accepted = try await client.send(text)
            let conversation = try await answered(client, accepted) { update in
                let answer = Data(update.conversation.answer(of: accepted.turnID).utf8)
                #expect(answer.prefix(shown.count) == shown)
                shown = answer
            }
            #expect(conversation.answer(of: accepted.turnID) == "één twee 世界 🌍")
            #expect(shown == Data("één twee 世界 🌍".utf8))
            #expect(conversation.endedTurn?.finishReason == .stop)
        }
    }

    /// Whoever watches later gets the whole conversation first, equal to what is listed.
    @Test func aWatchBeginsWithTheWholeConversation() async throws {
        try await connected { client in
            let accepted = try await client.send("Hello")
            _ = try await answered(client, accepted)
            for try await update in client.watch(accepted.sessionID) {
                #expect(update.event == nil)
                #expect(update.conversation.messages.count == 2)
                #expect(update.conversation.session?.id == accepted.sessionID)
                let listed = try await client.conversation(of: accepted.sessionID)
                #expect(update.conversation.messages.map(\.message) == listed.messages.map(\.message))
                break
            }
        }
    }

    /// Another watch goes on from the place of a conversation that is kept: nothing comes twice, nothing is missing.
    @Test func aWatchGoesOnFromAKeptConversation() async throws {
        try await connected { client in
            let accepted = try await client.send("/rate 200\n/words 40")
            var kept = Conversation()
            for try await update in client.watch(accepted) {
                kept = update.conversation
                if case .partDelta? = update.event?.kind { break }
            }
            #expect(kept.messages.last?.info.status == .streaming)
            var seen: Set<UInt64> = []
            for try await update in client.watch(accepted.sessionID, from: kept) {
                if let sequence = update.event?.sequence, sequence > 0 {
                    #expect(sequence > kept.sequence)
                    #expect(seen.insert(sequence).inserted)
                }
                guard update.turnEnded(accepted.turnID) != nil else { continue }
                let listed = try await client.conversation(of: accepted.sessionID)
                #expect(update.conversation.messages.map(\.text) == listed.messages.map(\.text))
                break
            }
        }
    }

    /// The same request twice stores one message.
    @Test func aNamedRequestIsCarriedOutOnce() async throws {
        try await connected { client in
            let request = Opencode_Message_SendMessageRequest.with {
                $0.parts = [.with { $0.text.text = "Once" }]
                $0.requestID = UUID().uuidString
            }
            let first = try await client.send(request)
            let second = try await client.send(request)
            #expect(second.messageID == first.messageID)
            #expect(second.disposition == .duplicate)
        }
    }

    /// Messages wait while a turn runs, in order; an abort ends it and drops them.
    @Test func messagesWaitAndAreDropped() async throws {
        try await connected { client in
            let accepted = try await client.send("/rate 5\n/words 100")
            let second = try await client.send("Second", to: accepted.sessionID)
            let third = try await client.send("Third", to: accepted.sessionID)
            var aborted = false
            for try await update in client.watch(accepted.sessionID) {
                let conversation = update.conversation
                if conversation.waiting == [second.messageID, third.messageID], !aborted {
                    #expect(conversation.waitingMessages.map(\.text) == ["Second", "Third"])
                    #expect(conversation.status == .running)
                    aborted = true
                    let answer = try await client.abort(accepted.sessionID)
                    #expect(answer.droppedMessageIds == [second.messageID, third.messageID])
                }
                if aborted, conversation.waiting.isEmpty, conversation.status == .idle { break }
            }
            #expect(aborted)
        }
    }

    /// A tool is a function: the model gets what it returns, and what it throws.
    @Test(arguments: [nil, ToolLease(holder: "swift tests")])
    func toolsAreFunctions(_ lease: ToolLease?) async throws {
        struct City: Decodable { let city: String }
        struct Closed: Error, CustomStringConvertible { let description = "the window is closed" }
        let schema = #"{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}"#
        let weather = Tool("weather", "Tells the weather.", schema: schema) { (city: City, call) in
            call.log("looking")
            if city.city == "Delft" { throw Closed() }
            return "It rains in \(city.city)."
        }
        try await connected { client in
            let text = #"/tool weather {"city": "Gouda"}"# + "\n" + #"/tool weather {"city": "Delft"}"#
            let accepted = try await client.send(text, tools: [weather])
            let serving = Task { try await client.serve([weather], in: accepted.sessionID, lease: lease) }
            defer { serving.cancel() }
            let conversation = try await answered(client, accepted)
            let calls = conversation.messages.flatMap(\.toolCalls)
            #expect(calls.map(\.status) == ["success", "error"])
            #expect(calls.first?.output == "It rains in Gouda.")
            #expect(calls.last?.error.contains("the window is closed") == true)
        }
    }

    /// A call waits for a person; after "once" it runs, and after a rejection the model reads why.
    @Test func permissionsAreAnswered() async throws {
        let erase = Tool("erase", "Erases the board.") { _ in "Erased." }
        try await connected { client in
            let accepted = try await client.send("/tool erase {}\n/tool erase {}", tools: [erase])
            let serving = Task { try await client.serve([erase], in: accepted.sessionID) }
            defer { serving.cancel() }
            var answers = [PermissionAnswer.once, .reject(reason: "Not today.")]
            var asked: Set<String> = []
            let conversation = try await answered(client, accepted) { update in
                for request in update.conversation.permissions where asked.insert(request.id).inserted {
                    try await client.answer(request, answers.removeFirst())
                }
            }
            #expect(asked.count == 2)
            #expect(conversation.permissions.isEmpty)
            let calls = conversation.messages.flatMap(\.toolCalls)
            #expect(calls.map(\.status) == ["success", "error"])
            #expect(calls.last?.error.contains("Not today.") == true)
        }
    }

    /// Errors have the words of the contract.
    @Test func errorsAreTyped() async throws {
        try await connected { client in
            let missing = try await failure { try await client.send("Hello", to: "ses_missing") }
            #expect(missing.code == .notFound)
            #expect(missing.reason == "SESSION_NOT_FOUND")
            let empty = try await failure { try await client.send("") }
            #expect(empty.code == .invalidArgument)
            #expect(empty.fieldViolations.first?.field.hasPrefix("parts[0]") == true)
            let watched = try await failure { for try await _ in client.watch("ses_missing") {} }
            #expect(watched.reason == "SESSION_NOT_FOUND")
            let raw = try await failure {
                _ = try await client.sessions.getSession(.with { $0.sessionID = "ses_missing" })
            }
            #expect(raw.reason == "SESSION_NOT_FOUND")
        }
    }

    /// A watch ends with its session.
    @Test func aWatchEndsWithItsSession() async throws {
        try await connected { client in
            let session = try await client.sessions.createSession(.with { $0.title = "Short" })
            var isDeleted = false
            for try await update in client.watch(session.id) {
                if update.event == nil {
                    _ = try await client.sessions.deleteSession(.with { $0.sessionID = session.id })
                }
                isDeleted = update.conversation.isDeleted
            }
            #expect(isDeleted)
        }
    }

    /// A cancelled task ends its watch at once.
    @Test func aWatchIsCancelledWithItsTask() async throws {
        try await connected { client in
            let session = try await client.sessions.createSession(.init())
            let (began, hand) = AsyncStream<Void>.makeStream()
            let watching = Task {
                for try await _ in client.watch(session.id) { hand.yield() }
            }
            for await _ in began { break }
            watching.cancel()
            await #expect(throws: CancellationError.self) { try await watching.value }
        }
    }
}

@Suite struct AloneTests {
    /// Without a server a call fails with words, after the patience of the policy.
    @Test func noServerIsAnError() async throws {
        var retries = RetryPolicy()
        retries.patience = .milliseconds(500)
        let client = try Client.connect(to: "127.0.0.1:1", retries: retries)
        let error = try await failure { try await client.send("Hello") }
        #expect(error.code == .unavailable)
        await client.close()
    }

    /// An address that cannot be one is refused at once.
    @Test(arguments: ["", "localhost", "localhost:", "localhost:99999", ":50051"])
    func aWrongAddressIsRefused(_ address: String) async throws {
        let error = try await failure { _ = try Client.connect(to: address) }
        #expect(error.code == .invalidArgument)
    }
}
