"""A configuration file of a test."""

from pathlib import Path

from turnwire.config.configuration import Config, load_config


def load(text: str, environ: dict[str, str] | None = None, options: dict[str, str] | None = None) -> Config:
    """Writes test.toml into the working directory and reads it."""
    Path("test.toml").write_text(text)
    return load_config(Path("test.toml"), environ or {}, options)
