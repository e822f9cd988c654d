"""Which model a request is for: what it names in its path.

Law: a target is only read here, or changed in one segment; all other bytes stay.
"""

import re
from urllib.parse import quote, unquote

_DEPLOYMENT = re.compile(r"(/deployments/)([^/?#]+)(?=/)")
"""Source: Azure OpenAI, `/openai/deployments/NAME/chat/completions`."""


def find_deployment(target: str) -> str:
    """The deployment that a request target names, which stands for a model; the empty string if it names none."""
    found = _DEPLOYMENT.search(target.partition("?")[0])
    return unquote(found[2]) if found else ""


def replace_deployment(target: str, model: str) -> str:
    """The target with another deployment; unchanged if it names none."""
    path, mark, query = target.partition("?")
    return _DEPLOYMENT.sub(lambda found: found[1] + quote(model, safe=""), path, count=1) + mark + query
