"""Kinds of text: plain text, numbers and names of code, languages other than English, and groups of scripts.

A vocabulary may need many more tokens for one of them than ours does. Law: the count of a text depends on that text
only; without weights, it is the count itself. Linear time.
"""

from collections.abc import Iterable, Sequence
from math import ceil, fsum
from operator import mul, truediv
from typing import NamedTuple

from trimtab.rules.conversation import Conversation, CountTokens, Message

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
OTHER = """\
Запрос отправляется ещё раз после первой ошибки; после второй клиент получает ответ таким, какой он есть. \
Пожалуйста, объясните, что произойдёт, если соединение прервётся во время записи данных? Комиссия решила сначала \
запросить предложения у двух фирм, а потом письменно известить жителей соседних домов. Спасибо за быстрый ответ!
"""
"""Sample of Cyrillic."""
LATIN = """\
Guten Tag, ich habe gestern eine Rechnung erhalten, die ich nicht verstehe. Könnten Sie mir bitte erklären, wofür die \
zusätzlichen Gebühren berechnet wurden? Wenn ein Wert fehlt, wird die Voreinstellung benutzt. Le port se trouve à \
l'embouchure du fleuve et fut fondé au quatorzième siècle. Les erreurs d'écriture sont consignées, mais le programme \
continue afin qu'aucune requête ne soit perdue. Cancelé el contrato hace tres meses y devolví los aparatos dentro del \
plazo. Hoy solo atracan transbordadores y pequeños veleros. I vecchi magazzini servono da abitazioni e uffici.
"""
"""Sample of languages that are written in Latin letters, but English."""
HANGUL = """\
항구는 강어귀에 자리 잡고 있으며 십사 세기에 세워졌습니다. 추가 요금이 무엇에 대한 것인지 설명해 주시겠습니까? \
저는 석 달 전에 계약을 해지했고 기기도 기한 안에 반송했습니다. 오래된 창고는 주택과 사무실로 쓰입니다.
"""
"""Sample of Korean."""
SEMITIC = """\
يقع الميناء عند مصب النهر وقد تأسس في القرن الرابع عشر. هل يمكنكم أن تشرحوا لي سبب الرسوم الإضافية؟ لقد ألغيت العقد \
قبل ثلاثة أشهر وأعدت الأجهزة في الموعد المحدد. באותם ימים הגיעו הספינות בעיקר מערי הצפון כדי לטעון מלח, תבואה ועץ.
"""
"""Sample of Arabic and Hebrew."""
INDIC = """\
बंदरगाह नदी के मुहाने पर स्थित है। मैंने तीन महीने पहले अनुबंध समाप्त कर दिया था और उपकरण समय पर लौटा दिए थे। \
ในเวลานั้นเรือส่วนใหญ่มาจากเมืองทางเหนือเพื่อบรรทุกเกลือ ธัญพืช และไม้
"""
"""Sample of Hindi and Thai."""
SAMPLES = (PLAIN, CODE, DENSE, OTHER, LATIN, HANGUL, SEMITIC, INDIC)
"""By kind: the number of a kind is its place here."""
FOREIGN = range(SAMPLES.index(DENSE), len(SAMPLES))
"""Kinds of languages other than English. Languages of one kind differ, too."""
IS_PLAIN = 0
MOST_WEIGHT = 4.0
"""Largest weight of a character. Chosen: a vocabulary that has no token for it reads it as its bytes."""
LEAST_COUNT = 0.5
"""A text has at least this share of our count, whatever its characters weigh. Chosen: an answer that reports less is
not believed (models/calibration.py). Else long tokens of o200k_base, as in Chinese advertisements, count as nothing."""
_SIGNS = b"_0123456789"
_DENSE = bytes(range(0xE3, 0xEA))
"""First bytes in UTF-8 of the characters from U+3000 to U+9FFF: kana and Chinese characters."""
_OTHER = bytes((*range(0xC3, 0xD6), 0xE1))
"""The same of U+00C0 to U+057F, and U+1000 to U+1FFF: accents, Greek, Cyrillic, and rarer scripts."""
_HANGUL, _SEMITIC, _INDIC = bytes(range(0xEA, 0xEE)), bytes(range(0xD6, 0xE0)), b"\xe0"
"""The same of Korean; of Hebrew and Arabic; of the scripts of India, and Thai."""
_SCRIPTS = _DENSE, _OTHER, _HANGUL, _SEMITIC, _INDIC
_ACCENTS = bytes((*range(0xC3, 0xCA), 0xE1))
"""The same of Latin letters with accents, also those of Vietnamese."""
_LETTERS = bytes(each for each in range(128) if chr(each).isalpha()) + b" " + bytes(range(0x80, 0xC0)) + _ACCENTS
"""What prose in Latin letters is made of."""
_ENGLISH = b"th", b" you", b"ed "
LEAST_PROSE_BYTES = 80
"""Shorter texts are taken for English. Chosen: many a short one has none of _ENGLISH."""
_MOST_ENGLISH = 0.007
"""A text with fewer of these for each byte, above its accents, is not English. Measured: English has 0.04, others up to
0.003; of the English texts in recorded conversations, 0.3 % of the bytes are in one with so few."""
_MOST_OTHERS, _LEAST_SPACES, _MOST_SPACES = 0.1, 0.1, 0.25
"""Shares of the bytes of prose: else it is code, a table or a log. Chosen: prose has 0.04, and 0.12 to 0.18 spaces."""


class Chars(NamedTuple):
    """How many characters of each kind but plain a text has: digits and underscores, for example, as `code`.

    latin: all bytes of a text that is prose in Latin letters, but not in English.
    """

    code: float = 0
    dense: float = 0
    other: float = 0
    latin: float = 0
    hangul: float = 0
    semitic: float = 0
    indic: float = 0


class Weights(NamedTuple):
    """Tokens to add to our count for each character of a kind."""

    code: float = 0.0
    dense: float = 0.0
    other: float = 0.0
    latin: float = 0.0
    hangul: float = 0.0
    semitic: float = 0.0
    indic: float = 0.0

    def weigh(self, chars: tuple[float, ...]) -> float:
        return fsum(map(mul, self, chars))


EVEN, NO_CHARS = Weights(), Chars()


class Scale(NamedTuple):
    """How many tokens of a model a text has: `ratio` for each of ours, with the weights of its characters added."""

    ratio: float = 1.0
    weights: Weights = EVEN

    def predict(self, tokens: float, chars: tuple[float, ...]) -> float:
        """The model's tokens for so many of ours, without weights."""
        code, dense, other, latin, hangul, semitic, indic = self.weights  # not `weigh`: every answer comes here
        weighed = tokens + code * chars[0] + dense * chars[1] + other * chars[2] + latin * chars[3]
        weighed += hangul * chars[4] + semitic * chars[5] + indic * chars[6]
        return self.ratio * max(weighed, LEAST_COUNT * tokens)


class Measured(NamedTuple):
    """What a model's answers show of one kind of text, for one token of ours without weights.

    tokens: the model's own.
    chars: of each kind, because texts are rarely of one kind alone.
    is_settled: enough answers show it.
    """

    kind: int
    tokens: float
    chars: Chars = NO_CHARS
    is_settled: bool = True


def weigh(count: CountTokens, weights: Weights) -> CountTokens:
    """The count with weights; `count` itself if they are even."""
    if weights == EVEN:
        return count

    def count_weighed(text: str) -> int:
        tokens = count(text)
        weighed = tokens + weights.weigh(_count_bytes(text.encode("utf-8", "surrogatepass")))
        return max(round(weighed), ceil(LEAST_COUNT * tokens))

    return count_weighed


def count_chars(text: str) -> Chars:
    """The characters of a text by kind."""
    return count_bytes(text.encode("utf-8", "surrogatepass"))


def count_bytes(raw: bytes) -> Chars:
    """The same of a text in UTF-8."""
    return Chars(*_count_bytes(raw))


def _count_bytes(raw: bytes) -> tuple[int, ...]:
    size = len(raw)
    signs = size - len(raw.translate(None, _SIGNS))
    is_ascii, may_be_latin = raw.isascii(), size >= LEAST_PROSE_BYTES and signs <= _MOST_OTHERS * size
    if may_be_latin and is_ascii:  # most texts that may be are English
        may_be_latin = raw.count(b"th") < _MOST_ENGLISH * size
    latin = size if may_be_latin and _is_latin(raw, size) else 0
    if is_ascii:
        return signs, 0, 0, latin, 0, 0, 0
    dense, other, *more = [size - len(raw.translate(None, script)) for script in _SCRIPTS]
    return signs, dense, other, latin, *more


def _is_latin(raw: bytes, size: int) -> bool:
    """Whether a text is prose in Latin letters, but not in English."""
    if not _LEAST_SPACES <= raw.count(b" ") / size <= _MOST_SPACES:
        return False
    others, accents = len(raw.translate(None, _LETTERS)), size - len(raw.translate(None, _ACCENTS))
    return others <= _MOST_OTHERS * size and sum(map(raw.count, _ENGLISH)) < accents + _MOST_ENGLISH * size


def _note_chars(message: Message, *, drops_calls: bool) -> tuple[float, ...]:
    """The characters of a message by kind, which are noted in it: a message is sent again and again."""
    texts = message.texts
    if message.tool_calls and not drops_calls:
        texts = (*texts, *[text for call in message.tool_calls for text in (call.name, call.arguments)])
    raws = [text.encode("utf-8", "surrogatepass") for text in texts]
    if len(raws) > 1 and len(joined := b"".join(raws)) < LEAST_PROSE_BYTES:  # together they are no prose, either
        raws = [joined]
    chars = _count_bytes(raws[0]) if len(raws) == 1 else add_chars(map(_count_bytes, raws))
    object.__setattr__(message, "kinds", chars)
    return chars


def note_kinds(messages: Iterable[Message], *, drops_calls: bool = False) -> None:
    """Count the characters of messages in advance: a megabyte takes 12 ms, which `count_kinds` may not have."""
    for message in messages:
        if message.kinds is None:
            _note_chars(message, drops_calls=drops_calls)


def count_kinds(conversation: Conversation, *, drops_calls: bool = False) -> Chars:
    """The characters of a prompt by kind. `drops_calls`: those of calls are not counted."""
    found = [message.kinds or _note_chars(message, drops_calls=drops_calls) for message in conversation.messages]
    return add_chars([conversation.fixed_kinds, *found])


def add_chars(found: Iterable[tuple[float, ...]]) -> Chars:
    return Chars(*map(sum, zip(NO_CHARS, *found, strict=True)))


_SAMPLE_CHARS = tuple(map(count_chars, SAMPLES))
_USUAL = Chars(0.67, 1.1, 3.7, 4.27, 1.25, 2.4, 2.5)
"""Characters of its own kind for one token of ours in a text of that kind, as in the samples."""
LEAST_WEIGHTS = tuple(-0.9 / usual for usual in _USUAL)
"""Chosen: no vocabulary has a tenth of the tokens of another, for any kind of text."""
USUAL = (NO_CHARS, *(Chars(**{name: each}) for name, each in _USUAL._asdict().items()))
"""The usual characters of a text of each kind, for one token of ours."""
_LEAST_SHARE = 0.3
"""A text with this share of the usual characters of a kind is of that kind. Chosen: program code is plain text by this,
and logs and tables are not; in Chinese, four tokens in ten may be English."""
_DEVIATIONS = (0.15, 0.12, 0.55, 0.16, 0.1, 0.8, 0.25, 0.4)
"""How far the ratio and the weights of a vocabulary may be expected to lie from ours: the standard deviations. Chosen:
most vocabularies count plain text and code within 0.15 of ours, and all code alike; for a script that a model was not
trained on, the count may double."""
NOISE = 0.01
"""Standard deviation of what is measured. Chosen: the median of eight answers is rarely better."""


def find_kind(tokens: float, chars: Chars) -> int:
    """The kind of a text with so many tokens of ours: the one of which it has most, if that is enough; else plain."""
    shares = list(map(truediv, chars, _USUAL))
    most = max(shares)
    return 1 + shares.index(most) if most >= _LEAST_SHARE * tokens else IS_PLAIN


def judge(
    counted: float, chars: Chars, weights: Weights, scale: Scale, expected: Scale
) -> tuple[float, int, float, float]:
    """Of a prompt of `counted` tokens with these weights: those without, its kind, and what the two scales predict."""
    tokens = counted if weights is EVEN else max(counted - weights.weigh(chars), 1.0)
    return tokens, find_kind(tokens, chars), scale.predict(tokens, chars), expected.predict(tokens, chars)


def fit(scale: Scale, rows: Sequence[Measured], noise: float = NOISE) -> Scale:
    """The scale that fits what was measured, and lies as near as that allows to the one in use: least squares.

    What is measured of plain text counts for all kinds. Of another kind, a deviation is shared between the ratio and
    the kind's weight, by what may be expected of either.
    """
    ratio = scale.ratio
    for row in rows:
        if row.kind == IS_PLAIN:
            ratio *= row.tokens / max(scale.predict(1, row.chars), _TINY)
    values = [ratio, *(ratio * weight for weight in scale.weights)]
    spread = [[(deviation * ratio) ** 2 * (one == other) for other, _ in _NUMBERED] for one, deviation in _NUMBERED]
    for row in rows:
        place = (1.0, *row.chars)
        gains = [sum(map(mul, line, place)) for line in spread]
        size = sum(map(mul, gains, place)) + (noise * row.tokens) ** 2
        error = (row.tokens - sum(map(mul, values, place))) / size
        values = [value + gain * error for value, gain in zip(values, gains, strict=True)]
        spread = [
            [each - gain * other / size for each, other in zip(line, gains, strict=True)]
            for line, gain in zip(spread, gains, strict=True)
        ]
    ratio = max(values[0], _TINY)
    found = zip(values[1:], LEAST_WEIGHTS, strict=True)
    bounded = (min(max(value / ratio, least), MOST_WEIGHT) for value, least in found)
    return Scale(ratio, Weights(*(round(weight, 3) for weight in bounded)))


_NUMBERED = tuple(enumerate(_DEVIATIONS))
_TINY = 1e-3  # chosen: far below any ratio, so that nothing is divided by zero


def measure_samples(counted: Sequence[int], ours: Sequence[int]) -> list[Measured]:
    """What a server shows that counts the samples so, given our own counts."""
    return [
        Measured(kind, theirs / mine, Chars(*(each / mine for each in chars)), is_settled=False)
        for kind, (theirs, mine, chars) in enumerate(zip(counted, ours, _SAMPLE_CHARS, strict=True))
    ]


def fit_samples(counted: Sequence[int], ours: Sequence[int]) -> Scale:
    """The scale of such a server."""
    return fit(Scale(), measure_samples(counted, ours), noise=_NO_NOISE)


_NO_NOISE = 0.001  # chosen: a tokenizer says exactly what it counts
