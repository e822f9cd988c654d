"""Keys of the configuration that contradict each other."""

import pytest
from support.config import find_problems


@pytest.mark.parametrize(
    "text",
    [
        "{listen: 'h:0', metrics_listen: 'h:0'}",
        "workers: 4",
        "dashboard: {keep_text: true}",
        "{dashboard: {keep_text: true}, listen: '0.0.0.0:8790', client_keys: [a], admin_token: t}",
        "{dashboard: {enabled: false, keep_text: true}, client_keys: [a]}",
        "{workers: 256, limits: {max_memory_bytes: 137438953472}}",
        "{workers: auto, limits: {max_memory_bytes: 536870912}}",
        "{defaults: {low_water: 0.79, high_water: 0.8}}",
        "{defaults: {low_water: 0.99}}",
        "{defaults: {high_water: 0.01}}",
        "{defaults: {low_water: auto}, profiles: {p: {high_water: auto}}}",
        "{upstreams: {b: {base_url: 'http://b'}}, defaults: {upstream: b}}",
        "{models: [{match: a}, {match: '*'}]}",
    ],
    ids=[
        "port 0 is another one each time",
        "memory for four",
        "text on this machine only",
        "text for who has the token",
        "no text without a dashboard",
        "memory for all",
        "auto takes what there is memory for",
        "low water below high water",
        "a high water above it is found",
        "a low water below it is found",
        "both are found",
        "an upstream that is there",
        "narrow first",
    ],
)
def test_what_does_not_contradict_is_accepted(text: str) -> None:
    """These values are close to contradictions."""
    assert find_problems(text) == []
