"""Summaries that clients wrote themselves are recognised by their first words."""

from rules.text.client_summaries import is_client_summary


def test_a_clients_summary_is_recognised_by_its_beginning() -> None:
    """Only a text that begins with the client's own introduction counts."""
    introduction = "This session is being continued from a previous conversation that ran out of context."

    assert is_client_summary(f"{introduction} The conversation is summarized below: ...")
    assert not is_client_summary(f"What does this mean? {introduction}")
