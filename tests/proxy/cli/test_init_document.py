"""The file that `trimtab init` writes."""

import re

import pytest

from trimtab.proxy.catalogue.prices import LOCAL
from trimtab.proxy.cli.init import DEFAULT_ECONOMY, FoundModel, write_document
from trimtab.proxy.config.load import load_config

ENVIRONMENT = {"OPENAI_API_KEY": "k", "ALICE_KEY": "a", "ADMIN_TOKEN": "t", "MY_KEY": "PLANTED"}
CHOICES = [
    {"base_url": "http://127.0.0.1:8000/v1"},
    {"base_url": "https://api.openai.com/v1", "own_key": "MY_KEY", "economy": "frugal", "mode": "observe"},
]


@pytest.mark.parametrize("choices", CHOICES, ids=str)
def test_the_file_says_what_was_chosen(choices: dict[str, str]) -> None:
    """It is valid, and the key stays in the environment."""
    text = write_document(**choices)
    config = load_config(text, environment=ENVIRONMENT)
    assert config.upstream.base_url == choices["base_url"]
    assert config.upstream.api_key == ENVIRONMENT.get(choices.get("own_key", ""))
    assert (config.defaults.economy, config.mode) == (
        choices.get("economy", DEFAULT_ECONOMY),
        choices.get("mode", "enforce"),
    )
    assert "PLANTED" not in text


def test_what_is_not_chosen_keeps_its_default() -> None:
    """Only the URL is set."""
    config = load_config(write_document(**CHOICES[0]), environment={}, is_online=False)
    assert config.model_fields_set == {"upstream"}
    assert config.upstream.model_fields_set == {"base_url"}


@pytest.mark.parametrize("choices", CHOICES, ids=str)
def test_every_key_in_a_comment_is_valid_once_its_mark_is_removed(choices: dict[str, str]) -> None:
    """So a reader only removes `# `, and keeps the indentation."""
    models = (FoundModel("some/model:7b", None, "", LOCAL),)
    text = write_document(**choices, unknown=models)
    opened, count = re.subn(r"(?m)^(\s*)# (?=\s*(?:- )?[a-z_]+:(?: |$))", r"\1", text)
    assert count > 8
    config = load_config(opened, environment=ENVIRONMENT)
    expected = {"upstream", "models", "mode", "defaults", "listen", "client_keys", "admin_token", "dashboard"}
    assert config.model_fields_set >= expected
    assert config.match_for("some/model:7b") is not None
    assert config.defaults.summary.model == "gpt-4o-mini"


def test_a_models_name_from_the_server_can_do_nothing_in_the_file() -> None:
    """It stays one text in one comment."""
    hostile = 'x"\nmode: off\n${HOME}'
    text = write_document(**CHOICES[0], unknown=(FoundModel(hostile, None, "", LOCAL),))
    assert load_config(text, environment={}) == load_config(write_document(**CHOICES[0]), environment={})
    assert "\nmode: off" not in text
