"""A request as a turn of its session: whether the cut moved with it, and what that has cost.

Law: pure. What is not known is None.
"""

from dataclasses import dataclass

from proxy.account.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Turn:
    """An event and its place in the session.

    cut_moved: no earlier request of the session had this newest cut and this prune stop.
    cut_tokens: forwarded tokens that the move made different from the previous prompt; None if not known.
        0 only if the whole previous prompt is still a prefix.
    cut_cost: what it cost that they were not read from the prompt cache, in nanodollars; None if not known.
    """

    event: Outcome
    cut_moved: bool = False
    cut_tokens: int | None = None
    cut_cost: int | None = None


def name_mark(event: Outcome) -> str:
    """The newest cut and the prune stop of a request, as one text; empty if nothing is cut."""
    window = event.window
    if window is None or not (window.cuts or window.prune_stop):
        return ""
    return f"{window.cuts[-1].at if window.cuts else 0}/{window.prune_stop}"


def follow(previous: Outcome | None, event: Outcome, *, is_new_mark: bool, cache_nanodollars: float | None) -> Turn:
    """The turn of a request.

    previous: the request of the session before it; None if not known. is_new_mark: no request before it had its mark.
    cache_nanodollars: what a token costs more if the prompt cache does not have it; None if not known.
    """
    if not is_new_mark:
        return Turn(event)
    if previous is None or event.prefix_kept is None:
        return Turn(event, cut_moved=True)
    changed_tokens = round(event.sent_tokens * (1 - event.prefix_kept))
    # New messages are no part of the move. Their size is that of the client's own messages, so this is an estimate.
    new_tokens = max(event.original_tokens - previous.original_tokens, 0)
    tokens = changed_tokens - new_tokens
    if tokens <= 0 < changed_tokens:  # new results were shortened, so more is new by this estimate than was sent
        return Turn(event, cut_moved=True)
    tokens = max(tokens, 0)
    cost = None if cache_nanodollars is None else round(tokens * cache_nanodollars)
    return Turn(event, cut_moved=True, cut_tokens=tokens, cut_cost=cost)
