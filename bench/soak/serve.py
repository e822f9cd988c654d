"""`trimtab serve` with caches a sixteenth as large, so that they are full when the soak's warm-up ends.

    python -m bench.soak.serve serve --upstream URL

Growth after that is not a cache that fills. Nothing else differs.
"""

from trimtab.proxy.account import prompt_cache
from trimtab.proxy.cli.main import main
from trimtab.proxy.compaction import caches
from trimtab.proxy.compaction.tokenizers import exact

SHARE = 16

if __name__ == "__main__":
    caches.KNOWN_BYTES //= SHARE
    caches.RESULTS_BYTES //= SHARE
    caches.SKETCHES_BYTES //= SHARE
    caches.DIFFS_BYTES //= SHARE
    caches.STATES_BYTES //= SHARE
    exact.MEMO_BYTES //= SHARE
    exact.LARGE_MEMO_BYTES //= SHARE
    prompt_cache.MAX_BYTES //= SHARE
    prompt_cache.MAX_NEWEST_BYTES //= SHARE
    main()
