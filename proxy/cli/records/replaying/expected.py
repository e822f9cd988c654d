"""The summaries that a configuration would ask for: what stands for each cut, and what the calls cost.

Law: no model is asked. The text that was recorded for a cut is used for the same cut; else a digest stands in, and then
it stays. As in the proxy, a cut whose summary was not asked for before is put off if the request fits without it; the
summary is taken to be there at the next request.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from proxy.cli.records.replaying.carry_out import Text
from proxy.cli.records.replaying.told import ToldSummary
from proxy.cli.records.replaying.ways import Chosen, Texts
from rules.pipeline.plan import Plan
from rules.summary.asking.prompts import PROMPT_TOKENS
from rules.summary.request import SummaryRequest


@dataclass(slots=True)
class Expected:
    """The summaries of one side, by session and by the prefix that they cover."""

    texts: Texts
    _asked: set[tuple[str, str]] = field(default_factory=set)
    _stood_in: set[tuple[str, str]] = field(default_factory=set)

    def choose_text(self, chosen: Chosen, session: str) -> Callable[[Plan], Text]:
        """The function that chooses the plan to carry out, and the text of its cut."""

        def choose(plan: Plan) -> Text:
            text = self._find(plan, chosen, session)
            wanted = plan.request
            is_new = wanted is not None and wanted.asks_model and (session, wanted.key) not in self._asked
            if text.summary is not None or not is_new:
                return text
            earlier = plan.put_off()
            while earlier is not None and self._lacks_text(earlier, session):
                earlier = earlier.put_off()
            if earlier is None or earlier.reserved_tokens > plan.fitting:
                return text
            return self._find(earlier, chosen, session)

        return choose

    def ask(self, chosen: Chosen, plan: Plan, session: str) -> list[ToldSummary]:
        """The calls that a request causes: for the cut that it needs, and for the next one. Each is made once."""
        calls = []
        for wanted in (plan.prefetch, plan.request):
            if wanted is not None and wanted.asks_model and (session, wanted.key) not in self._asked:
                self._asked.add((session, wanted.key))
                calls.append(_expect(wanted, plan, chosen))
        return calls

    def stands_in(self, plan: Plan, text: Text, session: str) -> bool:
        """Whether a digest stands in for a model's summary for the first time. text: what was chosen for the plan."""
        wanted = plan.request
        if wanted is None or not wanted.asks_model or text.summary is not None:
            return False
        is_new = (session, wanted.key) not in self._stood_in
        self._stood_in.add((session, wanted.key))
        return is_new

    def _find(self, plan: Plan, chosen: Chosen, session: str) -> Text:
        if plan.request is not None and (session, plan.request.key) in self._stood_in:
            return Text(plan)
        return Text(plan, self.texts.find(session, plan, chosen.way.compactor))

    def _lacks_text(self, plan: Plan, session: str) -> bool:
        wanted = plan.request
        return wanted is not None and wanted.asks_model and (session, wanted.key) not in self._asked


def _expect(wanted: SummaryRequest, plan: Plan, chosen: Chosen) -> ToldSummary:
    """The call for a summary: asked behind what was forwarded, which the cache holds, and as long as it may be."""
    ratio = chosen.way.policy.token_ratio
    before = plan.put_off() if plan.request is wanted else plan
    prompt = round(min((before or plan).reserved_tokens, plan.hard_limit) * ratio)
    completion = round(wanted.max_tokens * ratio)
    tokens = chosen.paid.imagine(prompt + round(PROMPT_TOKENS * ratio), prompt, completion)
    return ToldSummary(chosen.label, "expected", tokens.prompt, completion, tokens)
