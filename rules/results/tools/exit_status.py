"""Whether a tool's result says that the tool failed.

Law: linear, and by the first and last lines alone: what stands in between was read by the tool, not said by it.
"""

import re

EDGE_CHARS = 600
"""Of either end: where harnesses and shells say how a command ended."""

_NUMBER = r"-?(?:0x0{0,8}[1-9a-f][0-9a-f]{0,8}|0{0,8}[1-9][0-9]{0,10})(?![\w-]|\.\d)"
_RETURNED = r"-?0{0,8}(?:[1-9][0-9]?|1[0-9]{2}|2[4-9][0-9])(?![\w-]|\.\d)"
"""Not 200 and the like: those are HTTP's."""
_IS = r"""["']?[ \t]{0,2}[:=>]?[ \t]{0,2}["']?"""
_CODE = rf"(?:exit[ _-]?(?:code|status|value){_IS}{_NUMBER}|return[ _-]?(?:code|status){_IS}{_RETURNED})"
_LABEL = rf"""
    (?:^|[\[({{<>"'`,;|:] ?)                                   # at a line's beginning, or behind a sign
    (?:process[ ]|command[ ]|shell[ ]|with[ ]|non-?zero[ ])?
    {_CODE}
    (?=["'`]?[ \t]*(?:$|[\])}}<>,;|]|\.(?:[ \t\])}}<"']|$)     # and nothing behind it: prose goes on
        |\([^()\n]{{1,40}}\)[ \t]*$))
"""
_SENTENCE = rf"""
    \b(?:(?:exited|failed|terminated|died)[ ](?:(?:abnormally|unexpectedly)[ ])?(?:with[ ])?(?:an?[ ])?(?:error[ ])?
          (?:non-?zero[ ])?(?:(?:exit|return|status)[ _-]?)?(?:code|status|value)
        |(?:finished|completed|ended|stopped|returned)[ ](?:with[ ])?(?:an?[ ])?(?:non-?zero[ ])?
          (?:exit[ _-]?(?:code|status|value)|return[ _-]?(?:code|status)))
    [ ]?[:=]?[ ]?\(?{_NUMBER}
"""
_SHELL = rf"""
    \((?:exit[ :=]|rc[:=])[ ]?{_NUMBER}\)
    |^\[?(?:exit[:=]?[ ]|exit[:=]|rc[:=][ ]?){_NUMBER}\]?[ \t]*$
    |[\[({{|,;][ ]?rc={_NUMBER}
    |\b(?:failed|exited):[ ]exit[ ]{_NUMBER}
    |\b(?:process|command|script|program)[ ]exited[ ]\({_NUMBER}\)
"""
_TOOLS = rf"""
    ^\w{{0,9}}make(?:\[\d{{1,4}}\])?:[ ]\*\*\*[ ].{{0,200}}\bError[ ]{_NUMBER}
    |^(?:.{{0,80}}[ ])?(?:Segmentation[ ]fault[ \t]*$|\w{{3,30}}[ ]{{1,30}}\(core[ ]dumped\))
    |^Killed(?::[ ]9)?[ \t]*$
    |^npm[ ](?:ERR!|error)[ ](?:errno|code)[ ]
"""
_FLAG = r"""["'](?:is_?error)["'][ ]?:[ ]?true\b"""


def _compile(form: str) -> re.Pattern[str]:
    return re.compile(form, re.VERBOSE | re.IGNORECASE | re.MULTILINE)


_RETURN = tuple(f"return{sign}{what}" for sign in ("", " ", "_", "-") for what in ("code", "status"))
_FORMS = (
    (("exit", *_RETURN), _compile(_CODE), _compile(_LABEL)),
    (("exit", "failed", "terminated", "died", *_RETURN), _compile(_SENTENCE)),
    (("exit", "failed", "rc=", "rc:"), _compile(_SHELL)),
    (("***", "segmentation", "dumped", "killed", "npm"), _compile(_TOOLS)),
    (("is_error", "iserror"), _compile(_FLAG)),
)
"""Each form has one of its hints, and all of its patterns: most texts have no hint, and are done with quickly."""


def says_failure(text: str) -> bool:
    """Whether the text's first or last lines tell that a command failed, or call the result an error."""
    edges = (text,) if len(text) <= 2 * EDGE_CHARS else (text[:EDGE_CHARS], text[-EDGE_CHARS:])
    return any(map(_tells_of_failure, edges))


def _tells_of_failure(edge: str) -> bool:
    lowered = edge.lower()
    return any(
        any(hint in lowered for hint in hints) and all(pattern.search(edge) for pattern in patterns)
        for hints, *patterns in _FORMS
    )
