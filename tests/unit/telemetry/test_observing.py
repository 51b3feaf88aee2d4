"""Which models have series from the start."""

from pathlib import Path

from turnwire.config import load_config
from turnwire.domain.conversation.messages import ModelRef
from turnwire.telemetry.observing import named_models


def test_every_model_that_the_configuration_names_is_known(tmp_path: Path) -> None:
    """Wherever it names it: an outage of a fallback that never answered must have its name."""
    file = tmp_path / "turnwire.toml"
    file.write_text(
        "[defaults]\nmodel = 'a/default'\nfallback_models = ['a/fallback']\n"
        "[compaction]\nmodel = 'a/summaries'\n"
        "[agents.one]\nmodel = 'a/agent'\nfallback_models = ['a/of-agent']\n"
        "[models.'a/priced']\nname = 'x'\n"
        "[providers.a]\nkind = 'openai_chat'\nmodels = ['listed']\n"
    )
    names = ("default", "fallback", "summaries", "agent", "of-agent", "priced", "listed")
    assert named_models(load_config(file, {})) == {ModelRef("a", name) for name in names}
