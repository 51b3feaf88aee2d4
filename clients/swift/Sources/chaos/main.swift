// Follows a session through a bad network until its traffic has ended, and prints what it then holds:
// chaos ADDRESS SESSION_ID. Everything else it has to say goes to standard error.
import Foundation
import Turnwire

/// The traffic has ended, and all of it is held.
func isEnd(_ conversation: Conversation) -> Bool {
    guard let last = conversation.messages.last else { return false }
    return last.info.type == .assistant && last.info.status == .complete && last.text == "CHAOS END"
        && conversation.waiting.isEmpty && conversation.status == .idle
}

func say(_ line: String) {
    FileHandle.standardError.write(Data("\(line)\n".utf8))
}

let arguments = CommandLine.arguments
guard arguments.count == 3 else {
    say("usage: chaos ADDRESS SESSION_ID")
    exit(2)
}
do {
    var retries = RetryPolicy()
    retries.maximumDelay = .seconds(1)
    retries.attemptTimeout = .seconds(10)
    retries.silence = .seconds(10)
    let client = try Client.connect(to: arguments[1], retries: retries)
    var events = 0
    var whole = 0
    for try await update in client.watch(arguments[2]) {
        events += 1
        if update.event == nil { whole += 1 }
        guard isEnd(update.conversation) else { continue }
        let messages = update.conversation.messages.map(\.message)
        print(try Opencode_Message_SessionMessage.jsonString(from: messages))
        break
    }
    say("\(events) events, read whole \(whole) times")
    await client.close()
} catch {
    say("\(error)")
    exit(1)
}
