"""The error that a wrong configuration raises."""


class ConfigError(Exception):
    """The configuration is wrong. The message has one line for each problem."""
