"""Finds the elements of a body that have a certain property, and remembers them for the body that continues it.

Law: an element is looked at once in a session. What is remembered never changes the result.
"""

from collections.abc import Callable, Sequence

from proxy.wire.transcript.beginnings import Beginning, Marked


def find_marked(raws: Sequence[bytes], beginning: Beginning | None, is_marked: Callable[[bytes], bool]) -> list[int]:
    """The numbers of the elements for which `is_marked` holds. It must be the same for all bodies of a dialect."""
    known = Marked() if beginning is None or beginning.marked is None else beginning.marked
    new = [at for at in range(known.elements, len(raws)) if is_marked(raws[at])]
    found = [*known.found, *new]
    if beginning is not None:
        beginning.marked = Marked(len(raws), tuple(found))
    return found
