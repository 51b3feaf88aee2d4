/// What a client holds of one session: the fold of its events.
///
/// A value: what a watch gave you stays as it is, and copying it costs nothing until one of the copies changes. The messages
/// are those that `ListMessages` would answer. Begin with a list or with nothing, and `apply` what `WatchEvents` answers; a
/// `Watch` does all of it.
///
/// Appending a piece of text copies nothing as long as no other copy of the conversation is held. While one is held, such as
/// the one that is on the screen, the first change after it copies the list of messages and the text of the part that grows.
public struct Conversation: Sendable {
    /// What a turn waits for now, to show to people.
    public enum Notice: Sendable, Hashable {
        /// A call of the model failed and will be made again.
        case retry(Opencode_Event_RetryScheduled)
        /// Older messages are being summarised.
        case compaction(Opencode_Event_CompactionStarted)
    }

    /// The session with its current status; nil until an event told it, and when it is deleted.
    public private(set) var session: Opencode_Session_SessionInfo?
    /// Whether a turn runs, as it was told last.
    public private(set) var status = Opencode_Session_SessionStatus.unspecified
    /// The session was deleted. Nothing else is held then.
    public private(set) var isDeleted = false
    /// The ids of the messages that wait, next first.
    public var waiting: [String] { shelf.waiting }
    /// Grows with every change of the queue; give it as `expectedRevision`.
    public private(set) var queueRevision: UInt64 = 0
    /// The permission requests that are open, oldest first.
    public private(set) var permissions: [Opencode_Tool_PermissionRequest] = []
    /// The questions that are open, oldest first.
    public private(set) var questions: [Opencode_Question_Question] = []
    /// The turn that runs; nil when none does, or when it began before what was told.
    public private(set) var runningTurn: Opencode_Turn_Turn?
    /// The turn that ended last, with why it ended and what it used.
    public private(set) var endedTurn: Opencode_Turn_Turn?
    /// What the turn waits for; nil when it does not, or went on.
    public private(set) var notice: Notice?
    /// The greatest sequence that was told.
    public private(set) var sequence: UInt64 = 0
    /// Where a watch goes on; "" when no place is known. All events before it are part of this value.
    public private(set) var resumeToken = ""
    /// The client must list the messages and begin a new watch: what is held does not lead on.
    public private(set) var needsReread = false

    private var shelf = Shelf()
    private var noticeTurnID = ""

    /// A conversation of which nothing is held yet.
    public init() {}

    /// The conversation that a list shows. Of several pages, join the messages and keep the rest of the first one.
    public init(_ list: Opencode_Message_ListMessagesResponse) {
        sequence = list.sequence
        resumeToken = list.resumeToken
        for message in list.messages { shelf.add(Message(message)) }
    }

    /// A conversation of which nothing is held, and the place from which its events go on.
    public init(resumeToken: String) {
        self.resumeToken = resumeToken
    }

    /// The messages that do not wait, in the order of the conversation.
    public var messages: ArraySlice<Message> { shelf.settled }

    /// The messages that wait, next first, as far as they are held.
    public var waitingMessages: [Message] { shelf.waiting.compactMap { shelf[$0] } }

    /// A message, waiting or not; nil when it is not held.
    public subscript(messageID: String) -> Message? { shelf[messageID] }

    /// What the model has said in a turn so far: the text of its assistant messages, joined.
    public func answer(of turnID: String) -> String {
        let answers = messages.filter { $0.info.turnID == turnID && $0.info.type == .assistant }
        return answers.count == 1 ? answers[answers.startIndex].text : answers.map(\.text).joined()
    }

    /// Takes in a batch of a watch.
    public mutating func apply(_ batch: Opencode_Event_WatchEventsResponse) {
        for event in batch.events { apply(event) }
        moved(to: batch.resumeToken)
    }

    /// Takes note of the place behind the events that were applied. "" leaves it where it was.
    public mutating func moved(to resumeToken: String) {
        if !resumeToken.isEmpty { self.resumeToken = resumeToken }
    }

    /// Takes in one event. An event that was told before changes nothing.
    public mutating func apply(_ event: Opencode_Event_SessionEvent) {
        if event.sequence > 0 {
            guard event.sequence > sequence else { return }
            sequence = event.sequence
        }
        if notice != nil { forgetNotice(event) }
        switch event.kind {
        case .partDelta(let delta)?: shelf.change(delta.messageID) { $0.append(delta) }
        case .partStarted(let start)?: shelf.change(start.messageID) { $0.start(start.part) }
        case .partFinished(let end)?: shelf.change(end.messageID) { $0.finish(end.part) }
        case .toolCallUpdated(let call)?: shelf.change(call.messageID) { $0.update(call.partIndex, call.state) }
        case .toolLog(let line)?: shelf.change(line.messageID) { $0.log(line) }
        case .messageFinished(let end)?: shelf.change(end.message.messageID) { $0.finish(end.message) }
        case .messageReplaced(let new)?: shelf.change(new.message.messageID) { $0 = Message(new.message) }
        case .messageAdded(let new)?:
            shelf.add(Message(new.message))
            if !new.sessionTitle.isEmpty {
                session?.title = new.sessionTitle
                session?.titleFromMessage = true
            }
        case .messageSnapshot(let new)?: shelf.put(Message(new.message))
        case .messageRemoved(let old)?: shelf.remove(old.messageID)
        case .conversationChanged(let change)?:
            shelf.drop(behind: change.hasKeptThroughMessageID ? change.keptThroughMessageID : nil)
            if change.reread { needsReread = true }
        case .queueChanged(let queue)?:
            shelf.queue(queue.entries.map(\.messageID))
            queueRevision = queue.revision
        case .resync?: needsReread = true
        case nil: if event.rereadIfUnknown { needsReread = true }
        default: applyToTurns(event)
        }
    }

    private mutating func applyToTurns(_ event: Opencode_Event_SessionEvent) {
        switch event.kind {
        case .turnStarted(let start)?:
            runningTurn = start.turn
            shelf.join(start.turn.userMessageID)
        case .turnSteered(let steer)?: shelf.join(steer.userMessageID)
        case .turnEnded(let end)?:
            if runningTurn?.turnID == end.turn.turnID { runningTurn = nil }
            endedTurn = end.turn
        case .retryScheduled(let retry)?: announce(.retry(retry), event.turnID)
        case .compactionStarted(let start)?: announce(.compaction(start), event.turnID)
        default: applyToSession(event)
        }
    }

    private mutating func applyToSession(_ event: Opencode_Event_SessionEvent) {
        switch event.kind {
        case .sessionCreated(let new)?: replace(new.session)
        case .sessionUpdated(let new)?: replace(new.session)
        case .sessionSnapshot(let new)?:
            replace(new.session)
            shelf.queue(new.queue.map(\.messageID))
            queueRevision = new.queueRevision
        case .sessionStatusChanged(let change)?:
            status = change.status
            session?.status = change.status
        case .sessionDeleted?:
            let (sequence, resumeToken) = (sequence, resumeToken)
            self = Conversation(resumeToken: resumeToken)
            self.sequence = sequence
            isDeleted = true
        case .permissionAsked(let ask)?: open(ask.permission)
        case .permissionSnapshot(let ask)?: open(ask.permission)
        case .permissionReplied(let reply)?: permissions.removeAll { $0.id == reply.permissionID }
        case .questionAsked(let ask)?: open(ask.question)
        case .questionSnapshot(let ask)?: open(ask.question)
        case .questionAnswered(let answer)?: questions.removeAll { $0.questionID == answer.questionID }
        default: break  // context_compacted, caught_up, heartbeat: nothing that is held changes
        }
    }

    private mutating func replace(_ session: Opencode_Session_SessionInfo) {
        self.session = session
        status = session.status
    }

    private mutating func open(_ request: Opencode_Tool_PermissionRequest) {
        if !permissions.contains(where: { $0.id == request.id }) { permissions.append(request) }
    }

    private mutating func open(_ question: Opencode_Question_Question) {
        if !questions.contains(where: { $0.questionID == question.questionID }) { questions.append(question) }
    }

    private mutating func announce(_ notice: Notice, _ turnID: String) {
        self.notice = notice
        noticeTurnID = turnID
    }

    /// Ends a notice with the next event of its turn. Events of growing parts may name no turn; one turn runs at a time.
    private mutating func forgetNotice(_ event: Opencode_Event_SessionEvent) {
        switch event.kind {
        case .partDelta?, .partStarted?, .toolLog?: notice = nil
        default: if !event.turnID.isEmpty, event.turnID == noticeTurnID { notice = nil }
        }
    }
}
