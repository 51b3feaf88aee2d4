/// One step of a watch.
public struct Update: Sendable {
    /// What happened. nil: nothing in particular; the conversation was read whole, at the start of the watch or because
    /// what was held did not lead on.
    public let event: Opencode_Event_SessionEvent?
    /// The conversation with the event taken in.
    public let conversation: Conversation

    /// The turn, when it ended with this event, or is known to have ended before.
    ///
    /// - Parameter turnID: The turn. nil: any, as this event says.
    public func turnEnded(_ turnID: String? = nil) -> Opencode_Turn_Turn? {
        guard case .turnEnded(let end)? = event?.kind else {
            // Read whole: its turn_ended may be among what was not told one by one.
            guard event == nil, let ended = conversation.endedTurn, let turnID else { return nil }
            return ended.turnID == turnID ? ended : nil
        }
        return turnID == nil || end.turn.turnID == turnID ? end.turn : nil
    }
}
