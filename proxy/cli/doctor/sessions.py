"""Asks a trimtab that runs at the configured address whether sessions have digests instead of summaries."""

import asyncio
from collections import Counter
from http.client import HTTPException

from prometheus_client.parser import text_string_to_metric_families

from proxy.cli.doctor.checks import Finding
from proxy.cli.healthcheck import read_page
from proxy.config.schema import Config

MAX_PAGE_BYTES = 8 * 1024 * 1024
"""Chosen: several times the page of a busy server."""
_METRIC = "trimtab_sessions_without_summaries"


async def check_sessions(config: Config) -> list[Finding]:
    """How many sessions of a running trimtab have fallen to digests; nothing if none runs or its page is not shown."""
    page = await asyncio.to_thread(_read_metrics, config)
    reasons = Counter[str]()
    try:
        for family in text_string_to_metric_families(page):
            if family.name == _METRIC:
                for sample in family.samples:
                    if sample.name == f"{_METRIC}_total" and sample.value:
                        reasons[sample.labels.get("reason", "")] += int(sample.value)
    except ValueError:
        return []
    if not reasons:
        return []
    told = ", ".join(f"{reason} {number}" for reason, number in sorted(reasons.items()))
    found = f"{reasons.total()} since its start have digests instead of summaries: {told}"
    advice = "look at the log's summary events; name models that can write summaries in summary.model"
    return [Finding("sessions of the running trimtab", "warning", found, advice)]


def _read_metrics(config: Config) -> str:
    """The metrics page; empty if it cannot be read."""
    listen = config.metrics_listen or config.listen
    headers = {"Authorization": f"Bearer {config.admin_token}"} if config.admin_token else {}
    try:
        page = read_page(listen, config.metrics_path, headers, most_bytes=MAX_PAGE_BYTES)
    except (OSError, HTTPException):
        return ""
    return page.decode("utf-8", "replace") if page.startswith(b"# HELP") else ""
