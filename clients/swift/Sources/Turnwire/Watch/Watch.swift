/// The events of one session, each with the conversation as it is then. Made by `Client.watch`.
///
/// It resumes by itself: after any break it goes on where it was, so that no event is missed and none comes twice. Where the
/// server cannot go on there, or says that the conversation must be read anew, the watch lists the messages and goes on from
/// the list; the next update then has the whole conversation. It never shows a gap.
///
/// It ends after the session was deleted, and throws what no further try mends: TurnwireError, such as NOT_FOUND, or
/// CancellationError when its task is cancelled. Leaving the loop closes the stream.
public struct Watch: AsyncSequence, Sendable {
    public typealias Element = Update

    let client: Client
    let sessionID: String
    /// nil: list first.
    let start: Conversation?

    /// Begins a watch. Each iterator is a watch of its own.
    public func makeAsyncIterator() -> Iterator {
        Iterator(follower: Follower(client, sessionID, start))
    }

    /// Gives one update after the other. The next one is asked for only when it is wanted: a slow reader gets stored events
    /// late and pieces of text joined, and slows nobody.
    public struct Iterator: AsyncIteratorProtocol {
        let follower: Follower

        /// Waits for the next update; nil after the session was deleted.
        public mutating func next() async throws -> Update? {
            try await follower.next()
        }
    }
}

extension Client {
    /// Watches a session from now on, whatever happened before.
    ///
    /// The first update has no event: it is the whole conversation, with its queue and open requests.
    public func watch(_ sessionID: String) -> Watch {
        Watch(client: self, sessionID: sessionID, start: nil)
    }

    /// Watches a message that was sent, from its own `message_added` on. Messages before it are not held.
    public func watch(_ accepted: Opencode_Message_SendMessageResponse) -> Watch {
        Watch(client: self, sessionID: accepted.sessionID, start: Conversation(resumeToken: accepted.resumeToken))
    }

    /// Goes on from a conversation that is held, such as that of an earlier watch.
    public func watch(_ sessionID: String, from conversation: Conversation) -> Watch {
        let isPlace = !conversation.resumeToken.isEmpty && !conversation.needsReread
        return Watch(client: self, sessionID: sessionID, start: isPlace ? conversation : nil)
    }
}
