import Foundation
import Synchronization

/// A tool that this client runs: what the model is told of it, and the function.
///
/// ```swift
/// struct Place: Decodable { let city: String }
/// let weather = Tool("weather", "Tells the weather of a city.", schema: """
///     {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
///     """) { (place: Place, _) in "It rains in \(place.city)." }
/// ```
public struct Tool: Sendable {
    /// What the model is told.
    public let definition: Opencode_Tool_ToolDefinition
    let run: @Sendable (ToolCall) async throws -> ToolResult

    /// Makes a tool of a function that reads the arguments itself.
    ///
    /// - Parameters:
    ///   - name: 1 to 64 characters of A-Z, a-z, 0-9, "_" and "-".
    ///   - description: What the tool does, for the model.
    ///   - schema: JSON Schema of the arguments; "" means an object without properties. The server checks the arguments
    ///     before the function sees them.
    ///   - run: The function. What it throws is the result: an error that the model reads. Its task is cancelled when
    ///     nobody waits for the result any more.
    public init(
        _ name: String, _ description: String, schema: String = "",
        run: @escaping @Sendable (ToolCall) async throws -> ToolResult
    ) {
        definition = .with {
            $0.name = name
            $0.description_p = description
            $0.inputSchemaJson = schema
        }
        self.run = run
    }

    /// Makes a tool of a function that takes its arguments as a value.
    public init<Arguments: Decodable>(
        _ name: String, _ description: String, schema: String,
        run: @escaping @Sendable (Arguments, ToolCall) async throws -> ToolResult
    ) {
        self.init(name, description, schema: schema) { call in
            try await run(try call.arguments(), call)
        }
    }
}

/// A call of a tool by a model.
public struct ToolCall: Sendable {
    /// The session.
    public let sessionID: String
    /// The state of the call, as it was when it was found.
    public let state: Opencode_Tool_ToolCallState
    let lines = Lines()

    /// The call's id: unique, also over restarts. A function that must not do a thing twice can remember it.
    public var id: String { state.id }

    /// Reads the arguments.
    public func arguments<Arguments: Decodable>(as type: Arguments.Type = Arguments.self) throws -> Arguments {
        try JSONDecoder().decode(type, from: Data(state.inputJson.utf8))
    }

    /// Adds a line to the log of the call, which people see. Lines are sent when the lease is renewed: without a lease, and
    /// after the last renewal, they are lost. Of those that wait, the newest 100 are kept.
    public func log(_ line: String) {
        lines.add(line)
    }

    final class Lines: Sendable {
        private let waiting = Mutex<[String]>([])

        func add(_ line: String) {
            waiting.withLock {
                $0.append(String(line.prefix(500)))
                if $0.count > 100 { $0.removeFirst() }
            }
        }

        func take() -> [String] {
            waiting.withLock { lines in
                defer { lines = [] }
                return lines
            }
        }
    }
}

/// What a tool answers.
public struct ToolResult: Sendable, ExpressibleByStringInterpolation {
    enum Output: Sendable {
        case text(String)
        case json(String)
    }

    let output: Output
    /// The tool failed; the output says why. The model reads it.
    public var isError = false
    /// Further facts as a JSON object, shown to people and not to the model.
    public var metadataJSON = ""
    /// Files that the tool made, at most 20.
    public var files: [Opencode_Tool_ToolResultFile] = []

    /// A text. It may be empty.
    public init(_ text: String) {
        output = .text(text)
    }

    /// A value as JSON text. It is stored byte by byte; the server refuses what is not valid JSON.
    public init(json: String) {
        output = .json(json)
    }

    /// A text.
    public init(stringLiteral text: String) {
        self.init(text)
    }

    /// What the model reads when a tool failed.
    public static func failed(_ reason: String) -> ToolResult {
        var result = ToolResult(reason)
        result.isError = true
        return result
    }
}

/// A claim on each call before it is run, so that of several clients with the same tool one runs it.
public struct ToolLease: Sendable, Hashable {
    /// A name of this client, shown to people; at most 128 characters.
    public var holder: String
    /// How long a claim lasts without a renewal, from 1 second to 1 hour. It is renewed when half of it is over.
    public var duration: Duration

    /// Creates a lease.
    public init(holder: String, duration: Duration = .seconds(60)) {
        self.holder = holder
        self.duration = duration
    }
}
