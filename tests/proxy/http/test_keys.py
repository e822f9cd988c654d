"""Which of the configured client keys a request holds."""

import pytest

from proxy.http.keys import MAX_SHOWN, find_key

KEYS = ("key-one", "key-two")


@pytest.mark.parametrize(
    ("headers", "key"),
    [
        ([("Authorization", "Bearer key-two")], "key-two"),
        ([("AUTHORIZATION", "bearer  key-one")], "key-one"),
        ([("api-key", "key-one"), ("x-api-key", "key-two")], "key-one"),
        ([("x-trimtab-key", "key-two"), ("Authorization", "Bearer another")], "key-two"),
        ([("X-Goog-Api-Key", "key-two")], "key-two"),
        ([("Authorization", "key-one")], None),
        ([("x-auth-token", "key-one"), ("Cookie", "key-one")], None),
        ([("api-key", "key-on")], None),
        ([], None),
    ],
)
def test_a_key_is_found_wherever_a_client_may_show_it(headers: list[tuple[str, str]], key: str | None) -> None:
    """Only whole keys, only there. Of several, the first in the configuration counts."""
    assert find_key(KEYS, headers) == key


def test_only_the_first_credentials_are_looked_at() -> None:
    """Real clients do not send more."""
    shown = [("api-key", f"wrong-{number}") for number in range(MAX_SHOWN)]

    assert find_key(KEYS, [*shown, ("api-key", "key-one")]) is None
