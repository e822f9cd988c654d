"""Kinds of text: plain text, numbers and names of code, and Chinese, Japanese and Korean.

A vocabulary may need many more tokens for one of them than ours does. Law: the count of a text depends on that text
only; without weights, it is the count itself. Linear time.
"""

from collections.abc import Sequence
from typing import NamedTuple

from trimtab.rules.conversation import CountTokens

PLAIN = """\
The request is sent again after the first failure; after the second one, the client gets the answer as it is. \
Most people set the limit once and never change it, because the default fits what they do. If a file cannot be \
read, the program says which one, and goes on with the others. Thank you for the quick answer! Could you please \
explain what happens if the connection breaks while the data is being written? Certificates that expire during \
maintenance are reported together with the hostname, so operators can renew them beforehand.

class Harbour(Registry):
    def find_free(self, ship: Ship) -> Iterator[Berth]:
        for berth in self.berths.values():
            if berth.fits(ship) and not berth.closed:
                yield berth

- **Rollback**: if `commit` raises, the snapshot is restored from the write-ahead log.
- **Timeouts**: configurable for each endpoint; a negative value is refused with an explanation.
"""
"""Sample of plain text, with some code in it."""
CODE = """2026-11-28T14:02:32.024934Z worker_7 loaded 1,048,576 rows in 3.217 s (batch_size=4096, max_retries=3)
{"berth_id": 90217, "length_m": 12.5, "created_at": 1795886089, "owner_key": "row_17", "tags": ["crane_2", "east_14"]}
    return self._find_window(name, max_tokens=16_384, wait_seconds=0.25) or DEFAULT_WINDOW_TOKENS
"""
"""Sample of numbers and names."""
DENSE = """\
您好，请问附近有没有评分高一点的酒店？最好离地铁站近，价格在三百元左右，还要有免费的停车场。推荐您去颐和安缦酒\
店，评分是4.7分，电话是010-59879999。那我想在酒店附近找一家烤鸭店吃饭，人均消费在100元以内。\
四季民福烤鸭店很有名，地址是东城区灯市口西街，营业时间是上午十点到晚上九点。饭后打算去雍和宫游览，游玩时间多长\
比较合适？委员会决定先请两家公司报价，再写信通知附近的居民。
"""
"""Sample of Chinese."""
SAMPLES = (PLAIN, CODE, DENSE)
MOST_WEIGHT = 4.0
"""Largest weight of a character. Chosen: a vocabulary that has no token for it reads it as its bytes."""
_SIGNS = b"_0123456789"
_LEADS = bytes(range(0xE3, 0xEE))
"""First bytes in UTF-8 of the characters from U+3000 to U+DFFF: kana, Chinese characters, Hangul."""


class Weights(NamedTuple):
    """Tokens to add to our count for each digit or underscore, and for each Chinese, Japanese or Korean character."""

    code: float = 0.0
    dense: float = 0.0


EVEN = Weights()


def weigh(count: CountTokens, weights: Weights) -> CountTokens:
    """The count with weights; `count` itself if they are even."""
    if weights == EVEN:
        return count

    def count_weighed(text: str) -> int:
        signs, dense = _count_kinds(text)
        return max(round(count(text) + weights.code * signs + weights.dense * dense), 0)

    return count_weighed


def fit_weights(counted: Sequence[int], ours: Sequence[int]) -> tuple[float, Weights]:
    """The ratio of plain text, and the weights, from the samples' tokens as a server and as we count them."""
    ratio = counted[0] / ours[0]
    plain, numbers, chinese = (theirs / ratio - mine for theirs, mine in zip(counted, ours, strict=True))
    code = (numbers - plain) / _count_kinds(CODE)[0]
    signs, dense = _count_kinds(DENSE)
    return ratio, Weights(_bound(code), _bound((chinese - code * signs) / dense))


def _bound(weight: float) -> float:
    return round(min(max(weight, -1 / MOST_WEIGHT), MOST_WEIGHT), 2)


def _count_kinds(text: str) -> tuple[int, int]:
    """How many digits and underscores a text has, and how many Chinese, Japanese and Korean characters."""
    raw = text.encode("utf-8", "surrogatepass")
    dense = 0 if len(raw) == len(text) else len(raw) - len(raw.translate(None, _LEADS))
    return len(raw) - len(raw.translate(None, _SIGNS)), dense
