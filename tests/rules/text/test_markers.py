"""The texts that replace what was left out. They are documented and replayed, so they never change."""

from rules.text import markers


def test_markers_read_as_the_manual_says() -> None:
    assert markers.mark_middle(3, 40, "tokens") == "[trimtab: 3 lines (40 tokens) omitted here]"
    assert markers.mark_gap("9 lines", 40, "read it") == "[trimtab: 9 lines (~40 tokens) omitted here: read it]"
    assert markers.mark_next_gap("lines 3-9", 40) == "[trimtab: lines 3-9, ~40 tokens]"
    assert markers.mark_characters(9) == "[trimtab: 9 characters omitted]"
    assert markers.mark_items(2, 9) == "[trimtab: 2 of 9 items omitted]"
    assert markers.mark_records(2, 9) == "[trimtab: 2 of 9 items omitted; others may lack members]"
    pruned = "[trimtab: tool result of 900 tokens removed; call the tool again if you need it]"
    assert markers.mark_pruned(900) == pruned
    image = "[trimtab: image/png 1280x800, 182 kB, a.png, removed; ask for it again if you need it]"
    assert markers.mark_image("image/png 1280x800", "182 kB", "a.png") == image
    assert markers.TABLE == "[trimtab: table]"
    assert markers.POINTER == "[trimtab: same as the tool result "


def test_a_text_with_a_marker_of_truncation_is_recognised() -> None:
    assert markers.tells_omission(f"a\n{markers.mark_middle(3, 40, 'tokens')}\nb")
    assert markers.tells_omission(f"a\n{markers.mark_gap('9 lines', 40, 'read it')}\nb")
    assert not markers.tells_omission("a\nb")


def test_a_member_has_a_name_that_the_document_has_not() -> None:
    assert markers.name_member("{}") == "[trimtab]"
    assert markers.name_member('{"[trimtab]": 1, "[trimtab 2]": 2}') == "[trimtab 3]"
