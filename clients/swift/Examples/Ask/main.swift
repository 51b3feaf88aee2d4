// Sends a message and prints the answer while it comes: ask [TEXT [HOST:PORT]].
import Foundation
import Turnwire

let arguments = CommandLine.arguments
let text = arguments.count > 1 ? arguments[1] : "Hello from Swift"
let address = arguments.count > 2 ? arguments[2] : "127.0.0.1:50051"

do {
    let client = try Client.connect(to: address)
    let accepted = try await client.send(text)
    var shown = 0  // bytes of the answer that are on the screen
    for try await update in client.watch(accepted) {
        let answer = Data(update.conversation.answer(of: accepted.turnID).utf8)
        FileHandle.standardOutput.write(answer.dropFirst(shown))  // at once: it has no buffer
        shown = max(shown, answer.count)
        guard let turn = update.turnEnded(accepted.turnID) else { continue }
        if turn.hasFailure { throw TurnFailed(reason: "\(turn.failure.reason): \(turn.failure.message)") }
        break
    }
    print()
    await client.close()
} catch {  // without a server too
    FileHandle.standardError.write(Data("\(address): \(error)\n".utf8))
    exit(1)
}

struct TurnFailed: Error, CustomStringConvertible {
    let reason: String
    var description: String { reason }
}
