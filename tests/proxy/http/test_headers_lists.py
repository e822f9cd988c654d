"""Values that are added to headers which are lists."""

from multidict import CIMultiDict

from trimtab.proxy.http.headers import add_to_lists


def test_a_value_is_added_to_the_clients_own_once() -> None:
    """Several headers of the name become one; a value that is there already is not repeated."""
    headers = CIMultiDict([("Anthropic-Beta", "a, b"), ("anthropic-beta", "c")])
    add_to_lists(headers, [("anthropic-beta", "b")])
    assert headers.getall("anthropic-beta") == ["a, b", "c"]
    add_to_lists(headers, [("anthropic-beta", "d"), ("x", "y")])
    assert (headers.getall("anthropic-beta"), headers["x"]) == (["a, b, c, d"], "y")
