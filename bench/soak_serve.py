"""`trimtab serve` with caches a sixteenth as large, so that they are full when the soak's warm-up ends.

    python bench/soak_serve.py serve --upstream URL

What grows from then on is no cache. Nothing else differs.
"""

from proxy import compaction, counter, kept
from proxy.cli import main
from proxy.codecs import chat

SHARE = 16

if __name__ == "__main__":
    chat.CACHE_BYTES //= SHARE
    compaction.SHORTENED_BYTES //= SHARE
    compaction.FOLDS_BYTES //= SHARE
    counter.MEMO_BYTES //= SHARE
    kept.MAX_BYTES //= SHARE
    main()
