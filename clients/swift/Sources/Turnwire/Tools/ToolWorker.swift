import Foundation
import SwiftProtobuf

/// Runs one call: claims it where that is asked for, runs the function, submits its result.
struct ToolWorker: Sendable {
    let client: Client
    let tool: Tool
    let call: ToolCall
    let lease: ToolLease?

    /// Ends when the result is stored, or when nobody wants one. Its task is cancelled when the call is settled.
    func work() async {
        var result: ToolResult?
        while !Task.isCancelled {
            do {
                let leaseID = try await claim()
                if result == nil { result = try await run(leaseID) }
                guard let result else { continue }  // the lease was lost meanwhile: claim the call again
                return try await submit(result, leaseID)
            } catch let error as TurnwireError {
                guard let pause = pause(after: error) else { return }
                try? await Task.sleep(for: pause)
            } catch {
                return  // cancelled
            }
        }
    }

    /// How long to wait before another try; nil when the call needs nobody any more.
    private func pause(after error: TurnwireError) -> Duration? {
        switch error.reason {
        case "LEASE_HELD", "TOOL_CALL_NOT_READY": max(error.retryDelay ?? .seconds(1), .milliseconds(100))
        case "LEASE_LOST": .milliseconds(100)
        default: error.isTransient ? error.retryDelay ?? .seconds(1) : nil
        }
    }

    private func claim() async throws -> String {
        guard let lease else { return "" }
        let request = Opencode_Tool_ClaimToolCallRequest.with {
            $0.sessionID = call.sessionID
            $0.toolCallID = call.id
            $0.holder = lease.holder
            $0.duration = Google_Protobuf_Duration(lease.duration)
            $0.requestID = UUID().uuidString
        }
        return try await client.call(patience: nil) {
            try await client.tools.claimToolCall(request, options: $0)
        }.lease.leaseID
    }

    /// Runs the function, and renews the lease meanwhile. nil: the lease was lost, and the function cancelled.
    private func run(_ leaseID: String) async throws -> ToolResult? {
        let (tool, call) = (tool, call)
        return try await withThrowingTaskGroup(of: ToolResult?.self) { group in
            group.addTask {
                do {
                    return try await tool.run(call)
                } catch {
                    if Task.isCancelled { throw CancellationError() }
                    return .failed("\(error)")
                }
            }
            if let lease { group.addTask { try await renew(lease, leaseID) } }
            defer { group.cancelAll() }
            return try await group.next() ?? nil
        }
    }

    /// Extends the lease until it is lost.
    private func renew(_ lease: ToolLease, _ leaseID: String) async throws -> ToolResult? {
        while true {
            try await Task.sleep(for: lease.duration / 2)
            let request = Opencode_Tool_RenewToolCallRequest.with {
                $0.sessionID = call.sessionID
                $0.toolCallID = call.id
                $0.leaseID = leaseID
                $0.duration = Google_Protobuf_Duration(lease.duration)
                $0.logLines = call.lines.take()
                $0.requestID = UUID().uuidString
            }
            do {
                _ = try await client.call(patience: nil) {
                    try await client.tools.renewToolCall(request, options: $0)
                }
            } catch let error as TurnwireError where error.reason == "LEASE_LOST" {
                return nil
            }
        }
    }

    private func submit(_ result: ToolResult, _ leaseID: String) async throws {
        let request = Opencode_Tool_SubmitToolResultRequest.with {
            $0.sessionID = call.sessionID
            $0.toolCallID = call.id
            $0.leaseID = leaseID
            $0.isError = result.isError
            $0.metadataJson = result.metadataJSON
            $0.files = result.files
            switch result.output {
            case .text(let text): $0.output = text
            case .json(let json): $0.outputJson = json
            }
        }
        do {
            _ = try await client.call(patience: nil) {
                try await client.tools.submitToolResult(request, options: $0)
            }
        } catch let error as TurnwireError where error.code == .invalidArgument && !result.isError {
            // The model must not wait for a result that the server cannot take.
            try await submit(.failed("The tool's result was refused: \(error.message)"), leaseID)
        }
    }
}

extension Google_Protobuf_Duration {
    init(_ duration: Duration) {
        let (seconds, attoseconds) = duration.components
        self.init(seconds: seconds, nanos: Int32(attoseconds / 1_000_000_000))
    }
}
