"""`trimtab stats`: what it prints, and its status."""

from pathlib import Path

import orjson
import pytest
from support.command_line import run_trimtab


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        ((), 0, "no answered requests from"),
        (("--set", "store=memory"), 1, "trimtab: store: memory keeps nothing"),
        (("--set", "store=redis://127.0.0.1:9/0"), 1, "trimtab: the redis store failed"),
        (("--set", "mode=maybe"), 2, "mode: 'maybe' must be"),
        (("--since", "yesterday"), 2, "7d, 24h, 2w"),
        (("--by", "weather"), 2, "'weather' is not one of"),
    ],
)
def test_the_command_says_in_plain_words_what_is_wrong(arguments, status, sentence, tmp_path: Path) -> None:
    done = run_trimtab("stats", *arguments, HOME=str(tmp_path))
    assert done.exit_code == status
    assert sentence in done.output


def test_json_without_requests_is_still_json(tmp_path: Path) -> None:
    done = run_trimtab("stats", "--json", "--by", "client", "--since", "2w", HOME=str(tmp_path))
    told = orjson.loads(done.stdout)
    assert (told["rows"], told["total"]["requests"], told["by"]) == ([], 0, "client")
