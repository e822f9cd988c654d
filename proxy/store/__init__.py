"""Where summaries are kept: in this process, in a file, or on a server.

Law: a store gets encrypted bytes and ids, never a text or a credential. The first writer wins.
"""

from trimtab.proxy.store.opening import FILE_NAME, data_directory, find_key_file, open_store, require_store
from trimtab.proxy.store.store import StoreError, SummaryStore

__all__ = [
    "FILE_NAME",
    "StoreError",
    "SummaryStore",
    "data_directory",
    "find_key_file",
    "open_store",
    "require_store",
]
