"""Compaction as a library: bytes in, bytes out.

Law: no I/O except loading a vocabulary; safe to run in a thread.

The names in `__all__` are public; the modules that define them may change. `trimtab` offers
the same for the messages of an agent, `trimtab.rules` for conversations.

    compactor = load_compactor("gpt-4o")
    request = read_request(body)
    planned = compactor.plan(request, Policy(context_window=128_000))
    compacted = compactor.apply(planned, None)
    compacted.body, compacted.decisions, compacted.original_tokens, compacted.sent_tokens

Keep the compactor between requests: it remembers what it has counted and decided. If `planned.plan.request` is not
None, a cut needs a summary. Give `apply` a `Summary`, or None for a digest, which needs no model.
"""

from trimtab.proxy.compaction.compactor import Compacted, Compactor, Planned
from trimtab.proxy.compaction.pool import load_compactor
from trimtab.proxy.compaction.tokenizers.exact import VocabularyError
from trimtab.proxy.wire.chat.codec import read_messages
from trimtab.proxy.wire.codec import Request, UndecodableError
from trimtab.proxy.wire.dialects import read_request

__all__ = [
    "Compacted", "Compactor", "Planned", "Request", "UndecodableError", "VocabularyError", "load_compactor",
    "read_messages", "read_request",
]  # fmt: skip
