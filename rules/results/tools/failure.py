"""Whether a tool's result says that its call failed, or was never carried out.

Law: linear time, and only the beginning and the end of the result count. A long text that begins like an error is taken
for text that the tool has read.
"""

import re

from rules.conversation import Message
from rules.results.tools.exit_status import EDGE_CHARS, says_failure

SHORT_CHARS = 4000
"""The beginning of a longer result does not count. Chosen: error messages of tools are shorter, and a longer result is
text that the tool has read or printed."""

_REFUSED = re.compile(
    r"""(?:Error:\s{0,2})?(?:
        <tool_use_error>
        |InputValidationError
        |The[ ]user[ ](?:(?:does|did)(?:n['\u2019]t|[ ]not)[ ]want|(?:has[ ])?(?:denied|rejected|declined))\b
        |User[ ](?:rejected|denied|declined|cancell?ed)\b
        |\[Request[ ]interrupted
        |Permission[ ]to[ ]use[ ].{1,80}[ ]denied
        |No[ ]such[ ]tool|Unknown[ ]tool
    )""",
    re.VERBOSE | re.IGNORECASE,
)
_FAILED = re.compile(
    r"""
    (?:<error>|\[error\]|(?:fatal[ ]|tool[ ]|mcp[ ]|\w{1,40})?error(?:[ ]-?\d{1,6})?:|error[ ](?!s\b)\w{1,20}ing\b)
    |\{\s{0,8}"error"\s{0,4}:(?!\s{0,4}(?:null\b|false\b|""|\[\s{0,8}\]|\{\s{0,8}\}|0\b))
    |Traceback[ ]\(most
    |Failed(?:[ ]to[ ]|[ ]because[ ]|[:.]|$)
    |Invalid[ ](?:\w{1,30}[ ]?){1,3}(?:[:.]|$)
    |String[ ]to[ ]replace[ ]not[ ]found|No[ ]replacement[ ]was|old_str(?:ing)?\b.{0,80}\bnot[ ](?:found|unique|appear)
    |File[ ](?:has[ ]not[ ]been[ ]read|does[ ]not[ ]exist|not[ ]found)|No[ ]such[ ]file
    |apply_patch[ ]verification[ ]failed|(?:Permission|Access)[ ]denied
    |E(?:ACCES|NOENT|PERM|EXIST|ISDIR|NOTDIR|ROFS|NOSPC)\b
    """,
    re.VERBOSE | re.IGNORECASE | re.MULTILINE,
)


def tells_failure(result: Message) -> bool:
    """Whether the client or the result itself says that the call failed."""
    if result.is_error:
        return True
    text = result.text
    if says_failure(text):
        return True
    return len(text) <= SHORT_CHARS and (was_refused(result) or _FAILED.match(_begin(text)) is not None)


def was_refused(result: Message) -> bool:
    """Whether the result says that the call was not carried out."""
    text = result.text
    return len(text) <= SHORT_CHARS and _REFUSED.match(_begin(text)) is not None


def _begin(text: str) -> str:
    return text[:EDGE_CHARS].lstrip()
