"""The error messages of an invalid configuration."""

from trimtab.proxy.config.document import ConfigError
from trimtab.proxy.config.load import load_config


def find_problems(text: str, *settings: str, **environment: str) -> list[str]:
    """The lines of the error message; an empty list if the configuration is valid."""
    try:
        load_config(text, settings=settings, environment=environment)
    except ConfigError as error:
        return str(error).splitlines()
    return []
