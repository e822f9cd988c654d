"""The parts of a command line that the shell executes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.rules.summary.anchors.running import blank_texts


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
    """Except a command line that is given to another shell."""
    assert blank_texts(command) == blanked


@given(command=st.text(st.sampled_from("ab '\"\\\n#<E&c-sh"), max_size=60))
def test_each_index_stays_valid(command: str) -> None:
    """The length of any line is unchanged."""
    assert len(blank_texts(command)) == len(command)
