import Foundation

extension Client {
    /// Sends a text, and returns when the server has stored it. Its turn then runs whether or not the client stays.
    ///
    /// The request gets a name once, so trying again after a break stores nothing twice.
    ///
    /// - Parameters:
    ///   - text: What the user says; not empty.
    ///   - sessionID: The session; nil creates one, which the answer names.
    ///   - tools: Tools of this client for this turn. Run them with `serve`.
    ///   - configure: Changes the request before it is sent, such as its model or `busyPolicy`.
    /// - Returns: The session, the message, its turn and the token to watch from.
    /// - Throws: TurnwireError; CancellationError, after which the message may be stored or not.
    @discardableResult
    public func send(
        _ text: String, to sessionID: String? = nil, tools: [Tool] = [],
        configure: (inout Opencode_Message_SendMessageRequest) -> Void = { _ in }
    ) async throws -> Opencode_Message_SendMessageResponse {
        var request = Opencode_Message_SendMessageRequest()
        request.sessionID = sessionID ?? ""
        request.parts = [.with { $0.text.text = text }]
        request.tools = tools.map(\.definition)
        configure(&request)
        return try await send(request)
    }

    /// Sends a message, as `send` of a text does. A request without `requestID` gets one.
    @discardableResult
    public func send(
        _ request: Opencode_Message_SendMessageRequest
    ) async throws -> Opencode_Message_SendMessageResponse {
        var request = request
        if request.requestID.isEmpty { request.requestID = UUID().uuidString }
        let named = request
        return try await call { try await self.messages.sendMessage(named, options: $0) }
    }

    /// Ends the running turn. What the model had written stays. Without a running turn nothing happens.
    ///
    /// - Parameters:
    ///   - turnID: Ends the turn only when it is this one; nil ends any.
    ///   - keepQueue: True keeps the messages that wait, and the next one starts.
    @discardableResult
    public func abort(
        _ sessionID: String, turnID: String? = nil, keepQueue: Bool = false
    ) async throws -> Opencode_Message_AbortSessionResponse {
        let request = Opencode_Message_AbortSessionRequest.with {
            $0.sessionID = sessionID
            $0.expectedTurnID = turnID ?? ""
            $0.keepQueue = keepQueue
        }
        return try await call { try await self.messages.abortSession(request, options: $0) }
    }

    /// Reads the conversation of a session, all pages of it, as it is now.
    ///
    /// - Throws: TurnwireError (NOT_FOUND).
    public func conversation(of sessionID: String) async throws -> Conversation {
        try await conversation(of: sessionID, patience: retries.patience)
    }

    func conversation(of sessionID: String, patience: Duration?) async throws -> Conversation {
        var request = Opencode_Message_ListMessagesRequest()
        request.sessionID = sessionID
        request.pageSize = 1000
        var list = Opencode_Message_ListMessagesResponse()
        repeat {
            let asked = request
            let page = try await call(patience: patience) {
                try await self.messages.listMessages(asked, options: $0)
            }
            if request.pageToken.isEmpty {
                list = page  // its token is the place from which nothing is missed
            } else {
                list.messages += page.messages
            }
            request.pageToken = page.nextPageToken
        } while !request.pageToken.isEmpty
        return Conversation(list)
    }
}
