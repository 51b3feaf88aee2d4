import Foundation

/// A person's answer to a permission request.
public enum PermissionAnswer: Sendable, Hashable {
    /// This call may run.
    case once
    /// This call may run, and in this session whatever the patterns of the request match.
    case always
    /// The call may not run. The model reads the reason.
    case reject(reason: String = "")
}

/// A person's answer to a question of a tool.
public enum QuestionAnswer: Sendable, Hashable {
    /// What was filled in, as a JSON object that the schema of the question allows; "{}" for a link.
    case accept(json: String = "{}")
    /// The person said no.
    case decline
    /// The person put it away without a decision.
    case cancel
}

extension Client {
    /// Answers a permission request. The first answer counts; the same one again does no harm.
    ///
    /// - Throws: TurnwireError with the reason "PERMISSION_ALREADY_ANSWERED" when there is another answer, or its turn has
    ///   ended.
    public func answer(_ request: Opencode_Tool_PermissionRequest, _ answer: PermissionAnswer) async throws {
        let response = Opencode_Tool_PermissionResponse.with {
            $0.sessionID = request.sessionID
            $0.permissionID = request.id
            switch answer {
            case .once: $0.response = "once"
            case .always: $0.response = "always"
            case .reject(let reason):
                $0.response = "reject"
                $0.reason = reason
            }
        }
        _ = try await call { try await self.permissions.respondToPermission(response, options: $0) }
    }

    /// Answers a question of a tool. The first answer counts. The request has a name, so trying again does no harm.
    ///
    /// Show who asks (`source`), and of a link the whole address; open it only when the person agrees.
    ///
    /// - Throws: TurnwireError with the reason "QUESTION_ALREADY_ANSWERED" when there is another answer, or its time, its
    ///   call or its turn has ended; INVALID_ARGUMENT when the schema does not allow what was filled in.
    public func answer(
        _ question: Opencode_Question_Question, _ answer: QuestionAnswer, reason: String = ""
    ) async throws {
        let request = Opencode_Question_AnswerQuestionRequest.with {
            $0.sessionID = question.sessionID
            $0.questionID = question.questionID
            $0.reason = reason
            $0.requestID = UUID().uuidString
            switch answer {
            case .accept(let json):
                $0.action = .accept
                // Only a form takes content.
                if case .schema = question.form { $0.contentJson = json }
            case .decline: $0.action = .decline
            case .cancel: $0.action = .cancel
            }
        }
        _ = try await call { try await self.questions.answerQuestion(request, options: $0) }
    }
}
