// A person who imports Turnwire gets the messages of the contract as well.
@_exported import TurnwireContract
