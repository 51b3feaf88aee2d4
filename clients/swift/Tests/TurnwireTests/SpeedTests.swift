import Testing
import Turnwire

/// One answer in 100,000 events, as clients/vectors/README.md describes it.
private func largeStream() -> [[Opencode_Event_SessionEvent]] {
    var events: [Opencode_Event_SessionEvent] = [
        .with {
            $0.sequence = 1
            $0.sessionID = "ses_1"
            $0.messageAdded.message = .with {
                $0.messageID = "msg_1"
                $0.sessionID = "ses_1"
                $0.type = .assistant
                $0.status = .streaming
            }
        },
        .with {
            $0.partStarted.messageID = "msg_1"
            $0.partStarted.part = .with {
                $0.partID = "prt_1"
                $0.status = .streaming
                $0.text = .init()
            }
        },
    ]
    var all = ""
    for number in 0..<99_996 {
        let digits = String(number)
        let text = "delta \(String(repeating: "0", count: 7 - digits.count))\(digits) "
        all += text
        events.append(
            .with {
                $0.partDelta.messageID = "msg_1"
                $0.partDelta.offset = UInt32(14 * number)
                $0.partDelta.text = text
                $0.partDelta.endOffset = UInt32(14 * (number + 1))
            })
    }
    events.append(
        .with {
            $0.sequence = 2
            $0.sessionID = "ses_1"
            $0.partFinished.messageID = "msg_1"
            $0.partFinished.part = .with {
                $0.partID = "prt_1"
                $0.status = .complete
                $0.text.text = all
                $0.contentBytes = UInt32(all.utf8.count)
            }
        })
    events.append(
        .with {
            $0.sequence = 3
            $0.sessionID = "ses_1"
            $0.messageFinished.message = .with {
                $0.messageID = "msg_1"
                $0.sessionID = "ses_1"
                $0.type = .assistant
                $0.status = .complete
                $0.finishReason = .stop
            }
        })
    return stride(from: 0, to: events.count, by: 100).map { Array(events[$0..<min($0 + 100, events.count)]) }
}

@Suite(.serialized) struct SpeedTests {
    /// Text is appended where it stands: time grows with the events, not with the text that is there already.
    @Test func aLargeAnswerIsFoldedInTime() throws {
        let batches = largeStream()
        var conversation = Conversation()
        var read = 0
        let time = ContinuousClock().measure {
            for batch in batches {
                for event in batch { conversation.apply(event) }
                read += conversation.messages.last?.text.utf8.count ?? 0
            }
        }
        let text = try #require(conversation.messages.first).text
        #expect(conversation.messages.count == 1)
        #expect(text.utf8.count == 1_399_944)
        #expect(text.hasSuffix("delta 0099995 "))
        #expect(read > 0)
        print("100,000 events folded in \(time): \(Int(100_000 / (time / .seconds(1)))) events a second")
        #expect(time < .seconds(5))
    }

    /// A copy that is held stays as it is.
    @Test func aConversationIsAValue() throws {
        let events = largeStream()[0]
        var conversation = Conversation()
        for event in events[..<50] { conversation.apply(event) }
        let held = conversation
        for event in events[50...] { conversation.apply(event) }
        #expect(held.messages.last?.text.utf8.count == 48 * 14)
        #expect(conversation.messages.last?.text.utf8.count == 98 * 14)
    }
}
