"""What of a command line is no text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.summary.anchors.shell_words import blank_texts


@pytest.mark.parametrize(
    ("command", "blanked"),
    [
        ("make all &", "make all &"),
        ("echo 'a & b' &", "echo _______ &"),
        ('echo "a \\" & b" x', "echo __________ x"),
        ("ls # a &", "ls _____"),
        ("echo 'open &", "echo _______"),
        ("cat <<EOF > f\nx &\nEOF\nls &", "cat <<EOF > f\n       \nls &"),
        ("cat <<'E' &\nx", "cat <<___ &\n "),
        ("bash -c 'x &'", "bash -c \nx &\n"),
    ],
)
def test_texts_are_blanked(command: str, blanked: str) -> None:
    """But for the line that a shell is given."""
    assert blank_texts(command) == blanked


@given(command=st.text(st.sampled_from("ab '\"\\\n#<E&c-sh"), max_size=60))
def test_each_place_stays(command: str) -> None:
    """Whatever the line is."""
    assert len(blank_texts(command)) == len(command)
