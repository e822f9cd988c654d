"""Compaction as a library: bytes in, bytes out.

Law: no I/O but the loading of a vocabulary; safe to run in a thread.

What stands in `__all__` is public; the modules behind it may change. `rules` has the same for conversations.

    compactor = load_compactor("gpt-4o")
    request = read_request(body)
    planned = compactor.plan(request, Policy(context_window=128_000))
    compacted = compactor.apply(planned, None)
    compacted.body, compacted.decisions, compacted.original_tokens, compacted.sent_tokens

Keep the compactor: what it has counted and decided of a session is not worked out again. `planned.plan.request` names
the text that a cut wants; give `apply` a `Summary` of it, or None for a digest without a model.
"""

from proxy.compaction.compactor import Compacted, Compactor, Planned
from proxy.compaction.pool import load_compactor
from proxy.compaction.tokenizers.exact import VocabularyError
from proxy.wire.chat.codec import read_messages, read_request
from proxy.wire.codec import Request, UndecodableError

__all__ = [
    "Compacted", "Compactor", "Planned", "Request", "UndecodableError", "VocabularyError", "load_compactor",
    "read_messages", "read_request",
]  # fmt: skip
