"""What `trimtab init` finds at an upstream."""

import orjson
import pytest
from upstreams.recording import FakeUpstream

from trimtab.proxy.catalogue.prices import DEFAULT, LOCAL, find_listed
from trimtab.proxy.cli.doctor_checks import Finding
from trimtab.proxy.cli.init import FoundModel, Probe, probe
from trimtab.proxy.config.schema import UpstreamConfig


async def test_models_and_windows_are_found(upstream: FakeUpstream) -> None:
    """The key goes to the upstream, and nowhere else."""
    entries = [{"id": "odd\x1bname"}, {"id": "qwen3", "max_model_len": 32768}]
    upstream.models = orjson.dumps({"data": entries})
    found = await probe(UpstreamConfig(base_url=upstream.url), "sk-PLANTED")

    assert found.is_reachable
    assert [(model.name, model.window_tokens) for model in found.models] == [("qwen3", 32768), ("odd\x1bname", None)]
    assert [model.name for model in found.unknown] == ["odd\x1bname"]
    lines = list(found.describe())
    assert lines[1] == "  qwen3: window 32,768 (from the upstream); tokens cost time only"
    assert all(line.isprintable() for line in lines)
    asked = [*upstream.questions, *upstream.requests]
    assert {value for one in asked for value in one.header("Authorization")} == {"Bearer sk-PLANTED"}
    assert "PLANTED" not in str(found)


async def test_a_server_that_does_not_run_is_not_reachable() -> None:
    """The advice says what to look at."""
    found = await probe(UpstreamConfig(base_url="http://127.0.0.1:9/v1"), None)
    assert not found.is_reachable
    assert "what to do: " in list(found.describe())[1]


@pytest.mark.parametrize(
    ("level", "words", "is_reachable"),
    [
        ("error", "refuses the key (401)", True),
        ("warning", "answers; requires a key (401)", True),
        ("error", "does not answer within 5 seconds", False),
    ],
)
def test_a_server_that_wants_another_key_is_reachable(level, words: str, *, is_reachable: bool) -> None:
    """Only its list of models is missing."""
    assert Probe(Finding("upstream", level, words), ()).is_reachable is is_reachable


def test_prices_are_told_in_dollars_or_not_at_all() -> None:
    """Ratios of prices would mean nothing to a person."""
    openai = FoundModel("gpt-4o", 128000, "catalogue", find_listed("https://api.openai.com/v1", "gpt-4o"))
    assert openai.describe() == "window 128,000 (from the catalogue); $2.5 in, $1.25 cached, $10 out per million"
    assert FoundModel("m", None, "", DEFAULT).describe() == "window not known; prices not known"
    assert FoundModel("m", None, "", LOCAL).describe() == "window not known; tokens cost time only"


def test_a_long_list_is_cut_and_a_catalogues_gaps_are_no_questions() -> None:
    """Embedding models of a provider have no window that matters."""
    models = tuple(FoundModel(f"m{number}", None, "", DEFAULT) for number in range(20))
    found = Probe(Finding("upstream", "ok", "answers"), models, is_catalogued=True)
    assert list(found.describe())[-1] == "  and 8 more"
    assert found.unknown == ()
