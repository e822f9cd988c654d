"""How long a prompt stays cached."""

from proxy.state.catalogue.lifetimes import find_lifetime_seconds


def test_a_server_of_ones_own_keeps_prompts_while_it_has_memory() -> None:
    """Hosted models keep them for minutes."""
    assert find_lifetime_seconds("http://127.0.0.1:8000/v1", "m") is None
    assert find_lifetime_seconds("https://api.openai.com/v1", "gpt-4o") == 300
