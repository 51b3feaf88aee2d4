"""Labels are bounded, whatever callers send."""

from turnwire.domain.conversation.messages import ModelRef
from turnwire.telemetry.metrics.labels import MAX_CHARS, MAX_MODELS, MAX_TENANTS, OTHER, ModelLabels, TenantLabels

KNOWN = ModelRef("acme", "known")


def test_a_configured_model_has_labels_from_the_start() -> None:
    """Its provider and its name."""
    assert ModelLabels(["acme"], [KNOWN]).of(KNOWN) == ("acme", "known")


def test_a_model_that_nobody_configured_has_labels_once_it_answered() -> None:
    """Names that a caller invents make no series; those of a provider that is gone neither."""
    labels, new = ModelLabels(["acme"], [KNOWN]), ModelRef("acme", "new")
    assert labels.of(new) == ("acme", OTHER)
    assert labels.of(new, has_answered=True) == ("acme", "new")
    assert labels.of(new) == ("acme", "new")
    assert labels.of(ModelRef("gone", "m"), has_answered=True) == (OTHER, OTHER)


def test_models_are_bounded() -> None:
    """A server that answers under any name fills no memory; configured models keep their labels."""
    labels = ModelLabels(["acme"], [KNOWN])
    seen = {labels.of(ModelRef("acme", f"m{number}\n" + "x" * 999), has_answered=True) for number in range(1000)}
    assert len(seen) == MAX_MODELS + 1 and ("acme", OTHER) in seen
    assert all(model.isprintable() and len(model) <= MAX_CHARS for _, model in seen)
    assert labels.of(KNOWN) == ("acme", "known")


def test_tenants_are_bounded() -> None:
    """The first ones keep their labels."""
    labels = TenantLabels()
    seen = [labels.of(f"t{number}") for number in range(MAX_TENANTS + 5)]
    assert seen[-5:] == [OTHER] * 5 and len(set(seen)) == MAX_TENANTS + 1
    assert labels.of("t0") == "t0"
