"""The configuration, read once when the server starts. Start with `configuration`."""

from turnwire.config.configuration import Config, ConfigError, load_config

__all__ = ["Config", "ConfigError", "load_config"]
