"""What is raised for a configuration that is wrong."""


class ConfigError(Exception):
    """The configuration is wrong; the message has one line for each thing that is."""
