"""All dialects that the proxy speaks, and a mark for tests that must hold in each of them."""

import pytest
from support.dialects.spoken.chat import CHAT
from support.dialects.spoken.dialect import Dialect
from support.dialects.spoken.messages import MESSAGES
from support.dialects.spoken.responses import RESPONSES

from trimtab.proxy.wire.dialects import CODECS

KNOWN = {codec.name for codec in CODECS}
DIALECTS = tuple(dialect for dialect in (CHAT, RESPONSES, MESSAGES) if dialect.name in KNOWN)
OTHERS = tuple(dialect for dialect in DIALECTS if dialect is not CHAT)

each_dialect = pytest.mark.parametrize("dialect", DIALECTS, ids=str)


def find_dialect(path: str) -> Dialect:
    """The dialect of the requests on a path; chat completions for any other path."""
    return next((dialect for dialect in DIALECTS if path.partition("?")[0].endswith(dialect.path)), CHAT)
