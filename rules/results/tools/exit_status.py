"""Whether a tool's result says that the tool failed.

Law: linear time, and only the first and last lines count. The text between them is what the tool has read.
"""

import re

EDGE_CHARS = 600
"""Characters at each end that are searched. Chosen: harnesses and shells report there how a command ended."""

_NUMBER = r"-?(?:0x0{0,8}[1-9a-f][0-9a-f]{0,8}|0{0,8}[1-9][0-9]{0,10})(?![\w-]|\.\d)"
_RETURNED = r"-?0{0,8}(?:[1-9][0-9]?|1[0-9]{2}|2[4-9][0-9])(?![\w-]|\.\d)"
"""Numbers from 1 to 299, except 200 to 239: such a "return code" is usually an HTTP status."""
_IS = r"""["']?[ \t]{0,2}[:=>]?[ \t]{0,2}["']?"""
_CODE = rf"(?:exit[ _-]?(?:code|status|value){_IS}{_NUMBER}|return[ _-]?(?:code|status){_IS}{_RETURNED})"
_LABEL = rf"""
    (?:^|[\[({{<>"'`,;|:] ?)                                   # at the start of a line, or after a sign
    (?:process[ ]|command[ ]|shell[ ]|with[ ]|non-?zero[ ])?
    {_CODE}
    (?=["'`]?[ \t]*(?:$|[\])}}<>,;|]|\.(?:[ \t\])}}<"']|$)     # and nothing after it: prose would continue
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
"""Each form of a failure: hints, of which one must occur, then patterns, all of which must match. Searching the hints
first is fast, and most texts contain none."""


def says_failure(text: str) -> bool:
    """Whether the text's first or last lines say that a command failed, or call the result an error."""
    edges = (text,) if len(text) <= 2 * EDGE_CHARS else (text[:EDGE_CHARS], text[-EDGE_CHARS:])
    return any(map(_tells_of_failure, edges))


def _tells_of_failure(edge: str) -> bool:
    lowered = edge.lower()
    return any(
        any(hint in lowered for hint in hints) and all(pattern.search(edge) for pattern in patterns)
        for hints, *patterns in _FORMS
    )
