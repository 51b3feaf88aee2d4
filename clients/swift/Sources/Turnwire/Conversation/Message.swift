extension Conversation {
    /// A message of the conversation, as far as it has come.
    public struct Message: Sendable, Identifiable, Hashable {
        /// All of the message except its parts.
        public private(set) var info: Opencode_Message_SessionMessage
        /// Its parts, in order.
        public private(set) var parts: [Part]

        init(_ message: Opencode_Message_SessionMessage) {
            info = message
            info.parts = []
            parts = message.parts.map(Part.init)
        }

        /// Unique id.
        public var id: String { info.messageID }

        /// What is said: the text parts, joined. Reasoning, refusals and calls are not part of it.
        public var text: String {
            let texts = parts.filter(\.isText)
            return texts.count == 1 ? texts[0].text : texts.map(\.text).joined()
        }

        /// The tool calls, in order.
        public var toolCalls: [Opencode_Tool_ToolCallState] { parts.compactMap(\.toolCall) }

        /// The message as the contract has it, with its parts: what `ListMessages` answers.
        public var message: Opencode_Message_SessionMessage {
            var message = info
            message.parts = parts.map(\.message)
            return message
        }

        /// It waits in the queue, as far as its status says.
        var isQueued: Bool { info.status == .queued }

        /// Takes a piece of text; skips it when the part is not held.
        mutating func append(_ delta: Opencode_Event_PartDelta) {
            guard let place = place(of: delta.partIndex) else { return }
            parts[place].append(delta)
        }

        mutating func log(_ line: Opencode_Event_ToolLog) {
            guard let place = place(of: line.partIndex) else { return }
            parts[place].log(line)
        }

        mutating func update(_ index: UInt32, _ call: Opencode_Tool_ToolCallState) {
            guard let place = place(of: index) else { return }
            parts[place].update(call)
        }

        /// Adds a part, unless there is one at its index.
        mutating func start(_ part: Opencode_Message_Part) {
            if place(of: part.index) == nil { insert(part) }
        }

        /// Replaces the part at the index, or adds it.
        mutating func finish(_ part: Opencode_Message_Part) {
            if let place = place(of: part.index) {
                parts[place] = Part(part)
            } else {
                insert(part)
            }
        }

        /// Ends the message: keeps the parts that had ended, and drops those that a killed server has lost.
        mutating func finish(_ message: Opencode_Message_SessionMessage) {
            info = message
            info.parts = []
            parts.removeAll(where: \.isGrowing)
        }

        /// It does not wait any more, and comes behind the message of that id.
        mutating func join(behind previous: String?) {
            if isQueued { info.previousMessageID = previous ?? "" }
            info.status = .complete
        }

        private mutating func insert(_ part: Opencode_Message_Part) {
            let place = parts.firstIndex { $0.index > Int(part.index) } ?? parts.endIndex
            parts.insert(Part(part), at: place)
        }

        private func place(of index: UInt32) -> Int? {
            let index = Int(index)
            if index < parts.count, parts[index].index == index { return index }  // as good as always
            return parts.firstIndex { $0.index == index }
        }
    }
}
