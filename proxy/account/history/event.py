"""The dashboard's names of what became of a request."""

from proxy.account.outcome import Cut as EventCut
from proxy.account.outcome import Outcome as Event
from proxy.account.outcome import OutcomeText as EventText
from proxy.account.outcome import Window as EventWindow

__all__ = ["Event", "EventCut", "EventText", "EventWindow"]
