/// The messages of a conversation in their order: those that do not wait first, then those that wait.
///
/// An event finds its message by id. Text is appended where it stands: nothing is copied unless another copy of the
/// shelf is held.
struct Shelf: Sendable {
    private var messages: [Conversation.Message] = []
    /// How many do not wait.
    private var settledCount = 0
    private var places: [String: Int] = [:]
    /// The ids of those that wait, next first, whether they are held or not.
    private(set) var waiting: [String] = []
    /// Where the last change was. Most events are about the same message as the one before.
    private var lastPlace = 0

    var settled: ArraySlice<Conversation.Message> { messages[..<settledCount] }

    subscript(id: String) -> Conversation.Message? { places[id].map { messages[$0] } }

    /// Changes a message where it stands; skips one that is not held.
    mutating func change(_ id: String, _ body: (inout Conversation.Message) -> Void) {
        if lastPlace < messages.count, messages[lastPlace].id == id {
            body(&messages[lastPlace])
        } else if let place = places[id] {
            lastPlace = place
            body(&messages[place])
        }
    }

    /// Adds a message behind the others, unless it is held.
    mutating func add(_ message: Conversation.Message) {
        guard places[message.id] == nil else { return }
        if message.isQueued, !waiting.contains(message.id) { waiting.append(message.id) }
        insert(message)
    }

    /// Replaces a message in its place, or adds it.
    mutating func put(_ message: Conversation.Message) {
        if let place = places[message.id] {
            messages[place] = message
        } else {
            add(message)
        }
    }

    /// Takes a message out, from those that wait as well.
    mutating func remove(_ id: String) {
        waiting.removeAll { $0 == id }
        _ = take(id)
    }

    /// Drops what is behind a message and does not wait; all that does not wait when it is nil or not held.
    mutating func drop(behind id: String?) {
        let kept = id.flatMap { places[$0] }.flatMap { $0 < settledCount ? $0 + 1 : nil } ?? 0
        for message in messages[kept..<settledCount] { places[message.id] = nil }
        messages.removeSubrange(kept..<settledCount)
        settledCount = kept
        renumber(from: kept)
    }

    /// Puts a message behind the last one that does not wait: its turn began, or it joined one.
    mutating func join(_ id: String) {
        waiting.removeAll { $0 == id }
        guard var message = take(id) else { return }
        message.join(behind: settled.last?.id)
        insert(message)
    }

    /// Replaces what waits. What is left out waits on before the others while its status is queued.
    mutating func queue(_ told: [String]) {
        let before = waiting
        let ids = before.filter { !told.contains($0) && self[$0]?.isQueued == true } + told
        guard ids != before else { return }
        waiting = ids
        let (old, new) = (Set(before), Set(ids))
        for id in before + ids where old.contains(id) != new.contains(id) {
            if let message = take(id) { insert(message) }
        }
    }

    private mutating func take(_ id: String) -> Conversation.Message? {
        guard let place = places.removeValue(forKey: id) else { return nil }
        let message = messages.remove(at: place)
        if place < settledCount { settledCount -= 1 }
        renumber(from: place)
        return message
    }

    private mutating func insert(_ message: Conversation.Message) {
        let waits = waiting.contains(message.id)
        let place = waits ? messages.endIndex : settledCount
        messages.insert(message, at: place)
        if !waits { settledCount += 1 }
        renumber(from: place)
    }

    private mutating func renumber(from place: Int) {
        for later in place..<messages.count { places[messages[later].id] = later }
    }
}
