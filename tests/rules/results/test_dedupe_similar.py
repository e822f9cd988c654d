"""The index of earlier results."""

from support.builders import listing, result

from trimtab.rules.results.dedupe import Compared, Index, sketch_text


def compared(number: int, text: str) -> Compared:
    """A result without a call."""
    return Compared(number, result(f"c{number}", text), None, sketch_text(text))


def test_the_first_of_equal_results_is_found() -> None:
    """The target of a pointer does not change when more equal results come."""
    index, results = Index(), [compared(number, listing(1)) for number in range(3)]
    for one in results:
        index.add(one)
    assert index.find_equal(result("d", listing(1))) is results[0]
    assert index.find_equal(result("d", listing(2))) is None


def test_the_newest_of_those_that_share_the_most_lines_is_found() -> None:
    """A file that is read again is most similar to its latest version."""
    index, results = Index(), [compared(number, listing(1, number)) for number in range(3)]
    for one in results:
        index.add(one)
    assert index.find_near(sketch_text(listing(1, 9))) is results[2]


def test_little_in_common_is_nothing() -> None:
    """Few lines in common, or no sketch: nothing is found."""
    index = Index()
    index.add(compared(1, listing(1)))
    one_shared = listing(1).splitlines()[0] + "\n" + listing(2)
    assert index.find_near(sketch_text(one_shared)) is None
    assert index.find_near(sketch_text(listing(3))) is None
    assert index.find_near(sketch_text("one line")) is None
    assert index.find_near(None) is None
