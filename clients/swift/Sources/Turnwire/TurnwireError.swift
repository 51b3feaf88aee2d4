import Foundation
import GRPCCore
import GRPCProtobuf

/// An error of a call, in the words of the contract.
///
/// Compare `code` and `reason`; `message` is for people and may change. `reason` is the name of an `ErrorReason` of the
/// contract, such as "SESSION_NOT_FOUND", and "" for errors of gRPC itself and of the connection.
public struct TurnwireError: Error, Sendable, Hashable {
    /// A field of a request that is wrong.
    public struct FieldViolation: Sendable, Hashable {
        /// The path of the field, such as "parts[0].file.url".
        public var field: String
        /// What is wrong with it, for people.
        public var description: String

        /// Creates a violation.
        public init(field: String, description: String) {
            self.field = field
            self.description = description
        }
    }

    /// The status of gRPC.
    public var code: RPCError.Code
    /// What went wrong, for people.
    public var message: String
    /// The stable word for it, or "".
    public var reason: String
    /// Facts for programs by lowerCamelCase key, such as "maxBytes".
    public var metadata: [String: String]
    /// The fields of the request that are wrong; at most 20 are named.
    public var fieldViolations: [FieldViolation]
    /// How long to wait before another try; nil when the server did not say.
    public var retryDelay: Duration?

    /// Creates an error.
    public init(
        code: RPCError.Code, message: String, reason: String = "", metadata: [String: String] = [:],
        fieldViolations: [FieldViolation] = [], retryDelay: Duration? = nil
    ) {
        self.code = code
        self.message = message
        self.reason = reason
        self.metadata = metadata
        self.fieldViolations = fieldViolations
        self.retryDelay = retryDelay
    }

    /// Reads what the server said of an error of gRPC. Use it for calls of the generated services.
    public init(_ error: RPCError) {
        self.init(code: error.code, message: error.message)
        if error.message.isEmpty, let cause = error.cause {
            message = "\(cause)"
        }
        guard let status = try? error.unpackGoogleRPCStatus() else { return }
        for detail in status.details {
            if let info = detail.errorInfo {
                reason = info.reason
                metadata = info.metadata
            } else if let retry = detail.retryInfo {
                retryDelay = retry.delay
            } else if let request = detail.badRequest {
                fieldViolations += request.violations.map {
                    FieldViolation(field: $0.field, description: $0.violationDescription)
                }
            }
        }
    }

    /// Reads any error of a call whose own task was not cancelled: something else then ended the call.
    init(any error: any Error) {
        switch error {
        case let error as TurnwireError: self = error
        case let error as RPCError: self.init(error)
        case is CancellationError: self.init(code: .unavailable, message: "the call was ended by its connection")
        case let error as RuntimeError: self.init(code: .failedPrecondition, message: error.message)  // after close()
        default: self.init(code: .unknown, message: "\(error)")
        }
    }
}

extension TurnwireError: CustomStringConvertible, LocalizedError {
    /// One line: the reason or else the code, and the message.
    public var description: String {
        "\(reason.isEmpty ? "\(code)" : reason): \(message)"
    }

    /// As `description`.
    public var errorDescription: String? { description }
}
