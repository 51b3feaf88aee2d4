"""The failures of a model call, as errors of the domain."""
