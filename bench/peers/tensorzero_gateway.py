"""Runs inside TensorZero's environment: the gateway that its package embeds, without a program of its own.

    python bench/peers/tensorzero_gateway.py CONFIGURATION

Prints BASE and the URL on which it listens; runs until it is ended.
"""

import sys
import time

import tensorzero

gateway = tensorzero._start_http_gateway(  # noqa: SLF001 - its own patch_openai_client starts it so
    config_file=sys.argv[1], clickhouse_url=None, postgres_url=None, valkey_url=None, async_setup=False
)
print("BASE", gateway.base_url, flush=True)
while True:
    time.sleep(3600)
