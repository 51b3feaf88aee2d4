extension Conversation {
    /// A part of a message, as far as it has come.
    public struct Part: Sendable, Identifiable, Hashable {
        /// The part without the text that grows, which is in `text`.
        private var rest: Opencode_Message_Part
        /// The text of the part: of text, reasoning and refusals; the arguments of a tool call as JSON text; else "".
        public private(set) var text: String

        init(_ part: Opencode_Message_Part) {
            rest = part
            text = ""
            // Out of the message, so that nobody else holds it and appending copies nothing.
            switch rest.content {
            case .text(let content):
                text = content.text
                rest.text.text = ""
            case .reasoning(let content):
                text = content.text
                rest.reasoning.text = ""
            case .refusal(let content):
                text = content.text
                rest.refusal.text = ""
            case .toolUse(let call):
                text = call.inputJson
                rest.toolUse.inputJson = ""
            default:
                break
            }
        }

        /// Unique id.
        public var id: String { rest.partID }
        /// Position in the message, from 0.
        public var index: Int { Int(rest.index) }
        /// How far it is.
        public var status: Opencode_Message_PartStatus { rest.status }
        /// It still grows. When it ends it may be another one: a server that was killed has lost it.
        public var isGrowing: Bool { rest.status == .streaming }
        /// True for text that the model says to the user; false for reasoning, refusals, calls and all else.
        public var isText: Bool {
            if case .text = rest.content { true } else { false }
        }

        /// The tool call, if the part is one. Its arguments are complete when it has `startedAt`.
        public var toolCall: Opencode_Tool_ToolCallState? {
            guard case .toolUse(var call) = rest.content else { return nil }
            call.inputJson = text
            return call
        }

        /// The part as the contract has it. Copies nothing but what is needed; make it once for each use.
        public var message: Opencode_Message_Part {
            var part = rest
            switch rest.content {
            case .text: part.text.text = text
            case .reasoning: part.reasoning.text = text
            case .refusal: part.refusal.text = text
            case .toolUse: part.toolUse.inputJson = text
            default: break
            }
            return part
        }

        /// Takes a piece of text. No byte is lost or taken twice: what comes too early waits for the whole part.
        mutating func append(_ delta: Opencode_Event_PartDelta) {
            let held = rest.contentBytes
            guard delta.offset <= held, held < delta.endOffset else { return }
            if delta.offset == held {
                text += delta.text
            } else {
                text += String(decoding: delta.text.utf8.dropFirst(Int(held - delta.offset)), as: UTF8.self)
            }
            rest.contentBytes = delta.endOffset
        }

        /// Takes a line that the call logged.
        mutating func log(_ line: Opencode_Event_ToolLog) {
            guard case .toolUse(var call) = rest.content, Int(line.lineIndex) == call.logs.count else { return }
            call.logs.append(line.text)
            rest.toolUse = call
        }

        /// Takes the new state of the call.
        mutating func update(_ call: Opencode_Tool_ToolCallState) {
            rest.toolUse = call
            text = call.inputJson
            rest.toolUse.inputJson = ""
        }
    }
}
