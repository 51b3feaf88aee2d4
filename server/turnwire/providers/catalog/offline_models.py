"""The models of the built-in provider and their behaviour."""

from turnwire.ports.provider import ModelDescription

MODELS: tuple[ModelDescription, ...] = (
    ModelDescription(model_id="echo", name="Echo: answers with your text"),
    ModelDescription(model_id="lorem", name="Lorem: a long answer"),
    ModelDescription(model_id="reasoning", name="Reasoning: thinks aloud, then answers"),
    ModelDescription(model_id="tools", name="Tools: calls each declared tool"),
    ModelDescription(model_id="error", name="Error: fails before any content"),
    ModelDescription(model_id="fail", name="Fail: fails after some content"),
    ModelDescription(model_id="cut", name="Cut: loses the stream half way"),
    ModelDescription(model_id="refuse", name="Refuse: declines to answer"),
    ModelDescription(model_id="length", name="Length: stops at the output limit"),
)
"""The models, the default first."""
