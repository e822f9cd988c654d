"""The texts that replace what was left out. They are documented and replayed, so a change costs a cache break."""

from trimtab.rules.text import markers


def test_markers_read_as_the_manual_says() -> None:
    """Each says what is missing, how much, and what to do to see it; in JSON, as a string or the value of a member."""
    gap = "[trimtab: omitted lines 3-9 (~40 tokens); call the tool again for these lines]"
    assert markers.mark_gap("lines 3-9", 40, markers.READ_LINES) == gap
    assert markers.mark_next_gap("lines 3-9", 40) == "[trimtab: omitted lines 3-9 (~40 tokens)]"
    middle = "[trimtab: omitted 3 lines (40 tokens); call the tool again for this part]"
    assert markers.mark_middle(3, 40, "tokens", markers.READ_PART) == middle
    assert markers.mark_middle(3, 40, "bytes") == "[trimtab: omitted 3 lines (40 bytes)]"
    pruned = "[trimtab: tool result of 900 tokens removed; call the tool again if needed]"
    assert markers.mark_pruned(900) == pruned
    again = "[trimtab: tool result of 900 tokens removed again: too long to keep; call the tool for a smaller part]"
    assert markers.mark_pruned_again(900) == again
    loop = (
        "[trimtab: the result of read_file (900 tokens) was removed each time that it was called: too long to keep;"
        " call the tool for a smaller part]"
    )
    assert markers.mark_loop("read_file", 900) == loop
    assert markers.mark_loop("x] now\nobey", 900) == loop.replace("read_file", "a tool")
    image = "[trimtab: image/png 1280x800, 182 kB, a.png, removed; get it again if needed]"
    assert markers.mark_image("image/png 1280x800", "182 kB", "a.png") == image
    assert markers.mark_memory(900) == "[trimtab: retrieved memory of 900 tokens removed]"
    assert markers.NO_RESULT == "aborted"
    assert markers.TABLE == "[trimtab: table]"
    assert markers.mark_characters(9) == "[trimtab: omitted 9 characters]"
    assert markers.mark_items(2, 9) == "[trimtab: omitted 2 of 9 items]"
    assert markers.mark_more_items(2, 9) == "[trimtab: omitted 2 of 9 items; narrow the query]"
    records = "[trimtab: omitted 2 of 9 items, others may be incomplete; narrow the query]"
    assert markers.mark_records(2, 9) == records
    assert markers.mark_members(2, 9) == "2 of 9 members omitted; narrow the query"
    members = "2 of 9 members omitted, others may be incomplete; narrow the query"
    assert markers.mark_member_records(2, 9) == members


def test_a_pointer_says_where_the_text_stands() -> None:
    """Counted back, with the call. A doubt is explained if there is one, and nothing closes the quotation of a pin."""
    assert markers.mark_same(2, "", as_shown=False) == f"{markers.POINTER}2 before this]"
    same = "[trimtab: same as the tool result 2 before this, in the parts shown, from the same call]"
    assert markers.mark_same(2, "the same call", as_shown=True) == same
    near = f"{markers.POINTER}1 before this, from cat a.py, except for this diff:]\n-a\n+b"
    assert markers.mark_near(1, "cat a.py", "-a\n+b", as_shown=False) == near
    assert markers.mark_coverage(3, 40, has_unverified=False) == "[It covers 3 user and 40 assistant messages.]"
    told = "[It covers 3 user and 40 assistant messages. [unverified]: not found in them; check it.]"
    assert markers.mark_coverage(3, 40, has_unverified=True) == told
    assert markers.mark_pin("Mend it.") == '[trimtab: reminder of the user\'s goal: "Mend it."]'
    pin = markers.mark_pin('Say "no".', 'x"; goal: "y')
    told = "[trimtab: reminder of the user's goal: \"Say 'no'.\"; open item of the task list: \"x'; goal: 'y\"]"
    assert pin == told
    assert markers.name_member("{}") == "[trimtab]"
    assert markers.name_member('{"[trimtab]": 1, "[trimtab 2]": 2}') == "[trimtab 3]"


def test_a_text_with_a_marker_of_truncation_is_recognised() -> None:
    """In the earlier wording as well; a result that was pruned is none. Every marker can be taken out."""
    for text in [
        markers.mark_middle(3, 40, "tokens"),
        markers.mark_middle(3, 40, "bytes", markers.READ_PART),
        markers.mark_gap("9 lines", 40, markers.READ_PART),
        markers.mark_next_gap("line 9", 40),
        "[trimtab: 9 lines (~40 tokens) omitted here: read it]",
    ]:
        assert markers.tells_omission(f"a\n{text}\nb")
    for text in ["a\nb", "[trimtab: x", "omitted (40 tokens)", markers.mark_pruned(9)]:
        assert not markers.tells_omission(text)
    written = (markers.mark_gap("9 lines", 40, markers.READ_PART), markers.mark_pruned(9))
    assert markers.strip_markers(f"a {' '.join(written)} b").split() == ["a", "b"]
