import Foundation
import SwiftProtobuf
import Testing
import Turnwire

/// A file of clients/vectors: what WatchEvents answers, and what a client must then hold.
struct Vector: CustomTestStringConvertible {
    let name: String
    let description: String
    let start: String?
    let batches: [Data]
    let want: [String: Any]

    var testDescription: String { "\(name): \(description)" }

    /// All of them; the folder is beside this package, or where TURNWIRE_VECTORS says.
    static let all: [Vector] = {
        let folder =
            ProcessInfo.processInfo.environment["TURNWIRE_VECTORS"].map(URL.init(fileURLWithPath:))
            ?? URL(fileURLWithPath: #filePath).deletingLastPathComponent()
            .appendingPathComponent("../../../vectors")
        let files = try? FileManager.default.contentsOfDirectory(at: folder, includingPropertiesForKeys: nil)
        return (files ?? []).filter { $0.pathExtension == "json" }.sorted { $0.path < $1.path }.map(Vector.init)
    }()

    init(_ file: URL) {
        let fields = try! JSONSerialization.jsonObject(with: Data(contentsOf: file)) as! [String: Any]
        name = file.deletingPathExtension().lastPathComponent
        description = fields["description"] as! String
        start = fields["start"].map(Self.text)
        batches = (fields["batches"] as! [String]).map { Data(base64Encoded: $0)! }
        want = fields["want"] as! [String: Any]
    }

    static func text(_ value: Any) -> String {
        String(decoding: try! JSONSerialization.data(withJSONObject: value, options: .fragmentsAllowed), as: UTF8.self)
    }

    func messages(_ key: String) throws -> [Opencode_Message_SessionMessage] {
        try Opencode_Message_SessionMessage.array(fromJSONString: Self.text(want[key] ?? []))
    }

    func words(_ key: String) -> [String] { want[key] as? [String] ?? [] }
}

// JSONSerialization's values are not Sendable, but nobody changes these.
extension Vector: @unchecked Sendable {}

/// What is compared of messages: growing answers are stored without events, and JSON has no fields that are not known.
private func told(_ messages: some Sequence<Conversation.Message>) throws -> [Opencode_Message_SessionMessage] {
    try messages.map {
        var message = try Opencode_Message_SessionMessage(jsonString: $0.message.jsonString())
        message.clearUpdateTime()
        if message.status == .streaming {
            message.clearUsage()
            message.clearModelRun()
        }
        return message
    }
}

@Suite struct VectorTests {
    @Test func vectorsAreThere() {
        #expect(Vector.all.count > 5)
    }

    @Test(arguments: Vector.all) func foldIsWhatTheServerStores(_ vector: Vector) throws {
        var conversation = Conversation()
        if let start = vector.start {
            conversation = Conversation(try .init(jsonString: start))
        }
        for batch in vector.batches {
            conversation.apply(try Opencode_Event_WatchEventsResponse(serializedBytes: batch))
        }
        #expect(conversation.needsReread == (vector.want["needs_reread"] as? Bool))
        guard !conversation.needsReread else { return }
        let messages = try vector.messages("messages")
        #expect(try told(conversation.messages) == messages)
        #expect(conversation.waiting == vector.words("waiting"))
        let waiting = try vector.messages("waiting_messages")
        #expect(try told(conversation.waitingMessages) == waiting)
        #expect(Set(conversation.permissions.map(\.id)) == Set(vector.words("permissions")))
        #expect(Set(conversation.questions.map(\.questionID)) == Set(vector.words("questions")))
        #expect(conversation.isDeleted == (vector.want["deleted"] as? Bool))
        #expect(conversation.resumeToken == vector.want["resume_token"] as? String)
        let session = try (vector.want["session"] as? [String: Any]).map {
            try Opencode_Session_SessionInfo(jsonString: Vector.text($0))
        }
        #expect(conversation.session == session)
        let status = try Opencode_Event_SessionStatusChanged.with { $0.status = conversation.status }.jsonString()
        #expect(status == (vector.statusJSON))
    }
}

extension Vector {
    fileprivate var statusJSON: String {
        let name = want["status"] as! String
        return name == "SESSION_STATUS_UNSPECIFIED" ? "{}" : #"{"status":"\#(name)"}"#
    }
}
