"""Findings about the variables of the environment."""

from proxy.cli.doctor.checks import Finding
from proxy.config.load import find_unknown_variables


def find_unknown_names() -> list[Finding]:
    """A finding for all variables that begin like those of trimtab but set nothing."""
    found = find_unknown_variables()
    if not found:
        return []
    named = [f"{name} (did you mean {similar}?)" if similar else name for name, similar in found.items()]
    advice = "unset them, or use a name from the reference of the configuration"
    return [Finding("environment", "warning", f"these variables set no key: {', '.join(named)}", advice)]
