// swift-tools-version: 6.0
import PackageDescription

let package = Package(
    name: "turnwire",
    platforms: [.macOS(.v15), .iOS(.v18), .tvOS(.v18), .watchOS(.v11), .visionOS(.v2)],
    products: [
        .library(name: "Turnwire", targets: ["Turnwire"]),
        .library(name: "TurnwireContract", targets: ["TurnwireContract"]),
    ],
    dependencies: [
        // Calls, their options and their errors.
        .package(url: "https://github.com/grpc/grpc-swift-2.git", from: "2.0.0"),
        // HTTP/2 and TLS below the calls.
        .package(url: "https://github.com/grpc/grpc-swift-nio-transport.git", from: "2.0.0"),
        // The generated services, and the details of errors.
        .package(url: "https://github.com/grpc/grpc-swift-protobuf.git", from: "2.0.0"),
        // The generated messages.
        .package(url: "https://github.com/apple/swift-protobuf.git", from: "1.31.0"),
    ],
    targets: [
        // Generated from the contract; nothing here is written by hand.
        .target(
            name: "TurnwireContract",
            dependencies: [
                .product(name: "GRPCCore", package: "grpc-swift-2"),
                .product(name: "GRPCProtobuf", package: "grpc-swift-protobuf"),
                .product(name: "SwiftProtobuf", package: "swift-protobuf"),
            ],
            exclude: ["contract.sha256"]
        ),
        .target(
            name: "Turnwire",
            dependencies: [
                "TurnwireContract",
                .product(name: "GRPCCore", package: "grpc-swift-2"),
                .product(name: "GRPCNIOTransportHTTP2Posix", package: "grpc-swift-nio-transport"),
                .product(name: "GRPCProtobuf", package: "grpc-swift-protobuf"),
                .product(name: "SwiftProtobuf", package: "swift-protobuf"),
            ]
        ),
        .executableTarget(name: "ask", dependencies: ["Turnwire"], path: "Examples/Ask"),
        .executableTarget(name: "chaos", dependencies: ["Turnwire"]),
        .testTarget(name: "TurnwireTests", dependencies: ["Turnwire"]),
    ],
    swiftLanguageModes: [.v6]
)
