"""Families of models: the vocabulary that a model uses, and what its requests cost in addition to their texts.

Law: one table of globs on the model's name; the first match wins. The figures come from recorded requests with the
`usage` of real APIs. Calibration corrects them by what a model's own `usage` reports.
"""

from fnmatch import fnmatchcase
from functools import lru_cache
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from trimtab.rules.tokens.media import AreaCost, ImageCost, PatchCost, TileCost
from trimtab.rules.tokens.scripts import EVEN, Measured, Scale, Weights, fit_samples, measure_samples

GPT_4O_IMAGES = TileCost(85, 170)
O200K = "o200k_base"
CL100K = "cl100k_base"
HEURISTIC = "heuristic"


SAMPLE_TOKENS = {
    O200K: (194, 126, 148, 74, 139, 72, 77, 62),
    CL100K: (193, 125, 227, 136, 166, 117, 184, 180),
    HEURISTIC: (232, 80, 123, 83, 144, 73, 58, 45),
}
"""Tokens of the SAMPLES of scripts.py in our vocabularies. Counted."""


@lru_cache(1024)
def _fit_samples(samples: tuple[int, ...], vocabulary: str) -> Scale | None:
    ours = SAMPLE_TOKENS.get(vocabulary)
    if ours is None or len(ours) != len(samples):  # kept by a version with other samples
        return None
    ratio, weights = fit_samples(samples, ours)
    return Scale(round(ratio, 4), weights)


class Costs(msgspec.Struct, frozen=True):
    """Tokens that requests cost in addition to their texts.

    priming_tokens: once for each request.
    reads_typescript: tools are counted as TypeScript, else as JSON.
    nested_comments: the TypeScript has descriptions inside objects.
    tools_tokens: once if the request has any tool.
    call_tokens: for each tool call.
    frame_tokens: for each message, above the usual frame.
    unspoken_tokens: a system message that the server adds if the request begins with none.
    drops_tools, drops_calls: the server leaves tools, and calls of them, out of the prompt.
    weights: of kinds of text in which the model's vocabulary differs most from ours.
    """

    priming_tokens: int = 3
    reads_typescript: bool = False
    nested_comments: bool = True
    is_reasoning: bool = False
    tools_tokens: int = 0
    call_tokens: int = 4
    images: ImageCost = GPT_4O_IMAGES
    frame_tokens: int = 0
    unspoken_tokens: int = 0
    drops_tools: bool = False
    drops_calls: bool = False
    weights: Weights = EVEN


class Reading(NamedTuple):
    """How a server reads prompts, as it says itself.

    drops_tools, drops_calls: its chat template leaves tools, and calls of them, out.
    shifts: it can reuse what has moved in its cache.
    samples: the tokens of each of the SAMPLES of scripts.py; empty if the server does not say.
    priming, frame, unspoken: the tokens of a prompt outside its messages, of a message outside its text, and of what
        the server says before a prompt that begins with no system message; only with `samples`.
    """

    drops_tools: bool = False
    samples: tuple[int, ...] = ()
    priming: int = 0
    frame: float = 0.0
    unspoken: int = 0
    shifts: bool = False
    drops_calls: bool = False

    def take_props(self, told: "Reading") -> "Reading":
        """With what the server says since of its template and cache; calls that the template wrote stay counted."""
        drops_calls = self.drops_calls and told.drops_calls
        return self._replace(drops_tools=told.drops_tools, shifts=told.shifts, drops_calls=drops_calls)

    def find_scale(self, vocabulary: str) -> Scale | None:
        """How the server's tokens follow from those of the vocabulary; None if it did not say."""
        return _fit_samples(self.samples, vocabulary) if self.samples else None

    def measure(self, vocabulary: str) -> list[Measured]:
        """What the samples show; nothing if the server did not count them."""
        ours = SAMPLE_TOKENS.get(vocabulary, ())
        return measure_samples(self.samples, ours) if len(self.samples) == len(ours) else []


SILENT = Reading()
"""Of a server that says nothing of it."""


class Family(msgspec.Struct, frozen=True):
    """How a model counts. `ratio`: its own tokens for one token of `vocabulary`, until `usage` shows a better one.

    samples: the tokens of each of the SAMPLES of scripts.py in the model's own vocabulary; empty if they are not known.
    """

    costs: Costs
    vocabulary: str = O200K
    ratio: float = 1.0
    samples: tuple[int, ...] = ()

    def find_scale(self, vocabulary: str) -> Scale:
        """How the model's tokens follow from those of a vocabulary."""
        return _fit_samples(self.samples, vocabulary) or Scale(self.ratio)


GENERIC = Family(Costs())
"""The family of unknown models."""


def _measured(*samples: int) -> Family:
    scale = _fit_samples(samples, O200K) or Scale()
    return Family(Costs(weights=scale.weights), ratio=scale.ratio, samples=samples)


def _gpt(images: ImageCost) -> Family:
    return Family(Costs(reads_typescript=True, tools_tokens=9, images=images))


def _early_gpt() -> Family:
    return Family(Costs(reads_typescript=True, tools_tokens=9, nested_comments=False), vocabulary=CL100K)


def _o_series(images: ImageCost, tools_tokens: int = 10, call_tokens: int = 4) -> Family:
    costs = Costs(
        priming_tokens=2,
        reads_typescript=True,
        is_reasoning=True,
        tools_tokens=tools_tokens,
        call_tokens=call_tokens,
        images=images,
    )
    return Family(costs)


def _gpt_5(images: ImageCost) -> Family:
    """The first tool adds a preamble of some 80 tokens, and each call names its channel."""
    return _o_series(images, tools_tokens=91, call_tokens=10)


FAMILIES: tuple[tuple[str, Family], ...] = (
    ("gpt-3.5*", _early_gpt()),
    ("gpt-35*", _early_gpt()),
    ("gpt-4o-mini*", _gpt(TileCost(2833, 5667))),
    ("gpt-4o*", _gpt(GPT_4O_IMAGES)),
    ("chatgpt-4o*", _gpt(GPT_4O_IMAGES)),
    ("gpt-4.1-mini*", _gpt(PatchCost(1.62))),
    ("gpt-4.1-nano*", _gpt(PatchCost(2.46))),
    ("gpt-4.1*", _gpt(GPT_4O_IMAGES)),
    ("gpt-4.5*", _gpt(GPT_4O_IMAGES)),
    ("gpt-4*", _early_gpt()),
    ("gpt-[5-9]*-nano*", _gpt_5(PatchCost(1.5))),
    ("gpt-[5-9]*-mini*", _gpt_5(PatchCost(1.2))),
    ("gpt-[5-9]*", _gpt_5(TileCost(70, 140))),
    ("gpt-oss*", _o_series(TileCost(70, 140))),
    ("codex*", _gpt_5(TileCost(70, 140))),
    ("o4-mini*", _o_series(PatchCost(1.72))),
    ("o[1-9]*", _o_series(TileCost(75, 150))),
    ("*claude*4[.-][7-9]*", Family(Costs(images=AreaCost()), ratio=1.5)),
    ("*claude*", Family(Costs(images=AreaCost()), ratio=1.2)),
    ("*smollm*", _measured(214, 177, 352, 256, 214, 258, 233, 257)),
    ("*distill-qwen*", _measured(193, 160, 141, 96, 164, 81, 85, 138)),
    ("*distill-llama*", _measured(193, 125, 164, 91, 166, 74, 130, 87)),
    ("*deepseek*", _measured(203, 133, 127, 94, 158, 82, 92, 87)),
    ("*kimi*", _measured(193, 126, 114, 117, 184, 97, 116, 112)),
    ("*moonshot*", _measured(193, 126, 114, 117, 184, 97, 116, 112)),
    ("*glm*", _measured(193, 134, 128, 75, 153, 95, 134, 180)),
    ("*gemma*", _measured(206, 174, 149, 74, 140, 69, 84, 53)),
    ("*gemini*", _measured(206, 174, 149, 74, 140, 69, 84, 53)),
    ("*qwen*", _measured(193, 160, 141, 96, 164, 81, 85, 138)),
    ("*qwq*", _measured(193, 160, 141, 96, 164, 81, 85, 138)),
    ("*mistral*7b*", _measured(223, 178, 215, 131, 182, 133, 211, 186)),
    ("*mixtral*7b*", _measured(223, 178, 215, 131, 182, 133, 211, 186)),
    ("*stral*", _measured(198, 162, 201, 88, 143, 62, 77, 75)),
    ("*ixtral*", _measured(198, 162, 201, 88, 143, 62, 77, 75)),
    ("*codellama*", _measured(228, 181, 295, 125, 173, 195, 213, 194)),
    ("*tinyllama*", _measured(228, 181, 295, 125, 173, 195, 213, 194)),
    ("*llama[-_]2*", _measured(228, 181, 295, 125, 173, 195, 213, 194)),
    ("*llama2*", _measured(228, 181, 295, 125, 173, 195, 213, 194)),
    ("*phi[-_]3*", _measured(228, 181, 295, 125, 173, 195, 213, 194)),
    ("*phi3*", _measured(228, 181, 295, 125, 173, 195, 213, 194)),
    ("*llama*", _measured(193, 125, 164, 91, 166, 74, 130, 87)),
    ("*phi[-_]4*", _measured(193, 125, 227, 136, 166, 117, 184, 180)),
    ("*phi4*", _measured(193, 125, 227, 136, 166, 117, 184, 180)),
    ("*olmo*", _measured(193, 125, 227, 136, 166, 117, 184, 180)),
)
"""First match wins. Claude's ratios are means of recorded `usage`. The samples of the others were counted with their
own vocabularies, as splintr-rs 0.22.0 has them, and SmolLM2's by llama.cpp (2026-11-29)."""

_USUAL_FRAME = 4  # as messages.py counts it

MODEL_CHARS = 200
"""Longest part of a model name that is matched. Chosen: longer than any real name; bounds the cost of the globs."""


@lru_cache(1024)
def find_family(model: str) -> Family:
    """The family of a model. Router prefixes (`openai/`) and the mark of fine-tunes (`ft:`) are ignored."""
    return _match_family(model.rpartition("/")[2][:MODEL_CHARS].lower().removeprefix("ft:"))


@lru_cache(1024)  # a miss costs 14 us; names are cut to MODEL_CHARS, so the cache holds 1 MB at most
def _match_family(name: str) -> Family:
    return next((family for glob, family in FAMILIES if fnmatchcase(name, glob)), GENERIC)


@lru_cache(1024)
def read_costs(model: str, vocabulary: str, reading: Reading, weights: Weights | None = None) -> Costs:
    """What a model's requests cost beside their texts, at a server that reads them so.

    weights: as its answers show them; None for those of its tokenizer or family.
    """
    family, told = find_family(model), reading.find_scale(vocabulary)
    costs, expected = family.costs, told or family.find_scale(vocabulary)
    weights = expected.weights if weights is None else weights
    costs = replace(costs, drops_tools=reading.drops_tools, drops_calls=reading.drops_calls, weights=weights)
    if told is None:
        return costs
    return replace(
        costs,
        priming_tokens=round(reading.priming / told.ratio),
        frame_tokens=round(reading.frame / told.ratio) - _USUAL_FRAME,
        unspoken_tokens=round(reading.unspoken / told.ratio),
    )
