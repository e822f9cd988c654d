"""Sketches show that two texts share lines."""

from trimtab.rules.results.dedupe import MIN_LINE_CHARS, SKETCH_LINES, sketch_text


def test_candidates_are_the_same_on_every_machine() -> None:
    """They use checksums, not Python's own hashes, which differ between processes."""
    sketch = sketch_text("a line that is long enough\n\nanother line, long enough")
    assert sketch.lines == (1631350595, 3343473193)
    assert sketch.digest.hex().startswith("3acaabbd9e6ff073")
    assert sketch_text("no line break").lines == ()


def test_texts_that_share_most_lines_share_most_of_their_sketches() -> None:
    """The differing line may be anywhere. Texts without a common line share nothing."""
    lines = [f"{number}: a line that is long enough to count" for number in range(100)]
    sketch = set(sketch_text("\n".join(lines)).lines)
    assert len(sketch) == SKETCH_LINES
    for index in range(0, 100, 7):
        changed = "\n".join([*lines[:index], "another line", *lines[index + 1 :]])
        assert len(sketch & set(sketch_text(changed).lines)) >= SKETCH_LINES - 1
    other = sketch_text("\n".join(line.upper() for line in lines))
    assert not sketch & set(other.lines)


def test_a_text_of_short_lines_has_no_sketch() -> None:
    """Its length in characters does not bound the number of lines."""
    short, long = "\n".join(["a"] * 99), "\n".join(["a" * MIN_LINE_CHARS] * 99)
    assert (sketch_text(short).lines, len(sketch_text(long).lines)) == ((), 1)
    assert sketch_text(short).digest != sketch_text(long).digest
