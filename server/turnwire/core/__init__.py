"""The logic of Turnwire, independent of transports, databases and SDKs.

Listeners may call `use_cases` and `watches`; `turns` runs the messages that they accept. Start with `use_cases`.
"""
