"""`trimtab serve` with caches a sixteenth as large, so that they are full when the soak's warm-up ends.

    python -m bench.soak.serve serve --upstream URL

What grows from then on is no cache. Nothing else differs.
"""

from proxy.cli.main import main
from proxy.compaction import caches
from proxy.compaction import prefix_watch as kept
from proxy.compaction.tokenizers import exact as counter
from proxy.wire import known

SHARE = 16

if __name__ == "__main__":
    known.CACHE_BYTES //= SHARE
    caches.RESULTS_BYTES //= SHARE
    caches.STATES_BYTES //= SHARE
    counter.MEMO_BYTES //= SHARE
    kept.MAX_BYTES //= SHARE
    main()
