"""The configuration's keys for limits: sizes, numbers of requests, and times.

Law: a limit holds for all workers together; each worker gets its part.
"""

from math import ceil
from typing import Self

from pydantic import Field

from proxy.config.policies.tools import Section

MIN_MEMORY_BYTES = 512 * 1024 * 1024
"""The least memory of one process.

Chosen: it has space for an idle process, its caches and some requests; proxy/memory.py divides it.
"""

MIN_HELD_BYTES = 1024
"""Chosen: the same as the least `max_body_bytes`."""


class LimitsConfig(Section):
    """How much work trimtab accepts, and how long it waits."""

    max_body_bytes: int = Field(
        33_554_432,
        ge=1024,
        description="The largest request body, in bytes, that trimtab compacts. A larger body streams to the upstream "
        "unchanged.",
    )
    max_concurrent_requests: int = Field(
        1024,
        ge=1,
        description="The number of requests that may be in flight at once. Further requests get 503. Of several "
        "workers, each admits an equal part, rounded up, so one may refuse requests while another one is idle.",
    )
    max_memory_bytes: int = Field(
        2_147_483_648,
        ge=MIN_MEMORY_BYTES,
        description="The memory budget in bytes of all workers together: the processes, their caches and the requests "
        "in flight. A request for which no memory is left waits or gets 503. Each worker needs at least 536870912 "
        "bytes (512 MiB). Give a container this much and a little more.",
    )
    max_held_bytes: int | None = Field(
        None,
        ge=MIN_HELD_BYTES,
        description="The number of bytes of request bodies that trimtab holds at once, in all workers together. "
        "Further requests get 503. null: max_memory_bytes alone decides.",
    )
    max_plan_seconds: float = Field(
        2.0,
        gt=0,
        description="The time in seconds that a request waits for a free thread to compact it. After that, trimtab "
        "forwards the request unchanged if it certainly fits the context window, and answers 503 otherwise.",
    )
    client_silence_seconds: float = Field(
        60.0,
        gt=0,
        description="The time in seconds that a client may pause while it sends a request body. A longer pause gets "
        "408.",
    )
    shutdown_delay_seconds: float = Field(
        0.0,
        ge=0,
        description="The time in seconds after SIGTERM in which /trimtab/ready already reports 503 but new requests "
        "are still accepted. It lets a load balancer take this instance out of service first.",
    )
    drain_seconds: float = Field(
        20.0,
        ge=0,
        description="The time in seconds that requests in flight have to finish after shutdown_delay_seconds. "
        "After that, the connections of unfinished requests are reset.",
    )

    def divide(self, workers: int) -> Self:
        """The part of one of several workers. It is never less than a worker needs, so the sum may exceed the whole."""
        held_bytes = self.max_held_bytes
        return self.model_copy(
            update={
                "max_concurrent_requests": ceil(self.max_concurrent_requests / workers),
                "max_memory_bytes": max(self.max_memory_bytes // workers, MIN_MEMORY_BYTES),
                "max_held_bytes": None if held_bytes is None else max(held_bytes // workers, MIN_HELD_BYTES),
            }
        )
