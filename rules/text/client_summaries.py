"""Summaries that clients wrote themselves when they compacted a session, as they stand in the next one.

Law: data, and a function of one text.
"""

import re

_OPENINGS = re.compile(r"\s*This session is being continued from a previous conversation that ran out of context")
"""How the clients introduce their summaries. Source: Claude Code."""


def is_client_summary(text: str) -> bool:
    """Whether a text is the summary of an earlier session that a client inserted."""
    return _OPENINGS.match(text) is not None
