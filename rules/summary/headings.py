"""Find the four headings of a handoff note, however a model writes them.

Law: a heading is recognised by its words in one of the languages below, or by its number and its position among
headings of the same style. The text must be in NFKC form, in which full-width signs are ASCII.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trimtab.rules.text.late import compile_late

LEAST_PARTS = 3
"""Minimum number of headings of a note. Chosen: a note that was cut off before its last part is still better than a
digest."""
LEAST_KNOWN = 2
"""Minimum number of headings recognised by their words; the others may be recognised by their number. Chosen: one
alone may be chance."""
TITLE_CHARS = 80  # Longest title of a heading. Chosen: longer ones are sentences.
PREFACE_LINES = 2  # Most lines before headings that are recognised by their order: a title and an empty line.

_PROGRESS = (
    # First Latin and Cyrillic words, matched at the beginning of a word; then other scripts, matched anywhere.
    (
        "progress|so far\\b|current state|findings|decision|decided|done|completed|accomplish|achieve|status"
        "|fortschritt|entscheid|erledigt|sachstand"
        "|stand der|progreso|avance|decisi|hecho|progrès"
        "|décision|avancement|fait|avanzamento|fatto|progresso|decis|feito"
        "|andamento|voortgang|beslissing|besluit|gedaan|postęp|decyzj|framsteg|beslut|pokrok|rozhodnut|ilerleme|karar"
        "|kemajuan|keputusan|tiến|quyết định|прогресс|решени|сделано|выполнен|прогрес|рішен"
    ),
    ("进展|進展|进度|進度|决定|決定|决策|決策|完成|进程|進捗|経過|진행|결정|경과|التقدم|القرارات|प्रगति|निर्णय"),
)
_CONSTRAINTS = (
    (
        "constraint|preference|guideline|wishes|guardrail|requirement|restriction|rules"
        "|limits|limitation|einschränk|randbeding|vorgabe|präferenz"
        "|vorlieb|anforder|beschränk|wünsche|restric|limitac|preferenc|requisit|contrainte|préférence|exigence|vincol"
        "|preferenz|restriç|limitaç|preferênc|beperking"
        "|voorkeur|ogranicz|preferencj|begränsning|önskemål|omezen|kısıt"
        "|tercih|batasan|preferensi|ràng buộc|ưu tiên|огранич|предпочт|требован|обмежен|вподобан"
    ),
    ("约束|約束|限制|偏好|要求|制約|好み|要望|希望|제약|선호|요구|القيود|التفضيلات|बाधा|प्राथमिकत|सीमा"),
)
_REMAINING = (
    (
        "remain|next (?:step|up|action|task|thing)|comes next|action item|follow.?up|what.s next|to.?do\\b"
        "|outstanding|pending|open (?:task|item|work|point|question)"
        "|left to|what.s left|unfinished|still to|verbleib"
        "|offen|ausstehend|nächste|noch zu|restlich|pendiente|restante"
        "|por hacer|próxim|queda|falta|reste|à faire"
        "|prochaine|riman|da fare|prossim|restam|pendente|a fazer|resterend"
        "|nog te|volgende|openstaand|pozosta|do zrobienia|återst|kvar"
        "|nästa|zbývá|další|kalan|sisa|tersisa|berikut|còn lại"
        "|tiếp theo|остал|оставш|дальн|следующ|предстоит|залиш"
    ),
    (
        "剩余|剩餘|余下|待办|待辦|未完|下一步|后续|後續|残り|残作業"
        "|残タスク|次の|남은|남아|다음|할 일|المتبقي|التالي|शेष|बाकी|अगल"
    ),
)
_EXACT_DATA = (
    (
        "exact|data|details|facts|reference|identifier|artifact"
        "|artefact|specifics|verbatim|daten|angaben|genau|wörtlich"
        "|dato|detalle|exacte|donnée|dati|esatt|dados|exat|gegevens|dane|dokładn|uppgifter|přesn|veri|kesin|dữ liệu"
        "|chính xác|точн|данны|дані"
    ),
    (
        "数据|數據|资料|資料|精确|精確|准确|準確|具体|細節|细节"
        "|信息|データ|正確|詳細|情報|데이터|정확|정보|세부|البيانات|डेटा|सटीक"
    ),
)
_WORDS = tuple(
    compile_late(rf"(?<![^\W\d_])(?:{beginnings})|{anywhere}", re.IGNORECASE)
    for beginnings, anywhere in (_PROGRESS, _CONSTRAINTS, _REMAINING, _EXACT_DATA)
)

_LINE = compile_late(
    r"""\ {0,3}(?P<marks>[#>*_•+\ -]{0,10})(?:[^\x00-\x7f\w]{1,4}\ )?
    (?:(?i:part\ |section\ |§\ ?)?[(\[【]?
        (?P<number>\d{1,2}|[一二三四]|I{1,3}|IV|[A-D](?=[.)]\ ))
        (?P<dot>[.)、:\]】]{1,2}|\ufe0f?\u20e3)?(?P<again>[*_\ ]{0,4}))?
    (?P<text>.*)""",
    re.VERBOSE,
)
_NUMERALS = {"一": 1, "二": 2, "三": 3, "四": 4, "I": 1, "II": 2, "III": 3, "IV": 4, "A": 1, "B": 2, "C": 3, "D": 4}
_BULLETS = frozenset({"", "-", "*", "+", "\u2022"})
_TITLE_END = compile_late(r"\*\*|__|:|[.。](?:\s|$)|\s[-\u2013\u2014]\s|$")

_HTML = compile_late(r"\s{0,3}<h[1-6]\b[^>]{0,80}>(.*?)(?:</h[1-6]>|\Z)", re.IGNORECASE)
_ROW = compile_late(r"\s{0,3}\|\s*([^|]{1,200})\|(.*)")
_STEP = compile_late(
    r"(?:check|review|verify|read|run|fix|mend|do|finish|complete|update|look|inspect|confirm|implement|add"
    "|write|commit"
    r"|continue|make|create|remove|validate|examine|investigate|identify|gather|analy[sz]e|ensure|explore|find|get)\s"
    r"|检查|檢查|确认(?!的|事项)|核对|核實|核实|验证|阅读|查看|读取|运行|执行|修改|修复|更新|编写|提交|分析|继续"
    r"|(?:完成|处理)(?:剩余|剩下|余下|待办|所有|其余)",
    re.IGNORECASE,
)
"""Titles that are instructions: these are steps of a plan, not headings of a note."""
LABEL_WORDS = 6  # Most words of a heading without number, bold type or `#`. Chosen: longer ones are sentences.
_JOINING = frozenset(
    {"and", "und", "y", "e", "et", "en", "i", "och", "a", "ve", "dan", "và", "и", "та", "&", "/", "+", "the"}
)
"""Words between the two things that a heading names ("progress and decisions"), in the languages above, and the article
`the`, which joins nothing."""

_KNOWN_SCRIPTS = frozenset({"LATIN", "CYRILLIC", "CJK", "HIRAGANA", "KATAKANA", "HANGUL", "ARABIC", "DEVANAGARI"})
"""Scripts of the languages above: the first word of the Unicode names of their letters."""


@dataclass(frozen=True, slots=True)
class Heading:
    """A line that may be a heading.

    `style` is equal for headings that look alike. `rank` is which of the four it is by its words, 1 to 4; `number` is
    the number that it begins with. Each is 0 if there is none. `rest` is the text after the title, on the same line.
    """

    line: int
    style: str
    number: int
    rank: int
    title: str
    rest: str


def find_headings(lines: Iterable[str]) -> Sequence[Heading]:
    """The note's headings among these lines, in order; none if there are too few of them."""
    headings = [heading for index, line in enumerate(lines) if (heading := _read(index, line))]
    return _find_by_words(headings) or _find_by_order(headings)


def _read(line: int, text: str) -> Heading | None:
    """The heading that a line may be; None if it cannot be one."""
    html, row = _HTML.match(text), _ROW.match(text)
    cells = ""
    if html is not None:
        text = f"## {html[1]}"
    elif row is not None:
        text, cells = row[1].strip(), row[2]
    found = _LINE.match(text)
    if found is None:
        return None
    marks, number, again, said = found["marks"], found["number"] or "", found["again"] or "", found["text"]
    if number and not found["dot"] and "#" not in marks:  # "3 files were changed": the number belongs to the text
        number, again, said = "", "", text[found.end("marks") :]
    end = _TITLE_END.search(said)
    title, rest = (said, "") if end is None else (said[: end.start()], said[end.end() :])
    title = title.strip(" *_#")
    value = _NUMERALS.get(number) or int(number or 0)
    rank = _find_rank(title, value)
    if "#" in marks:
        style = "#" * marks.count("#")
    elif {"**", "__"} & {marks.strip()[-2:], again.strip()[:2]}:
        style = "bold"
    elif number:
        style = "number"
    else:
        signs = marks.strip(" >")
        ends_well = end is not None and (end[0] == ":" or (not end[0] and not signs))
        is_short = end is None or bool(end[0]) or (len(title.split()) <= LABEL_WORDS and title[-1:] not in {*"!?。"})
        style = "label" if rank and ends_well and signs in _BULLETS and is_short else ""
    is_heading = style and 0 < len(title) <= TITLE_CHARS
    return Heading(line, style, value, rank, title, rest + cells) if is_heading else None


def _find_rank(title: str, number: int) -> int:
    """Which of the four headings (1 to 4) a title names; 0 if none. If it names several, its number decides."""
    if _STEP.match(title):
        return 0
    ranks = [rank for rank, words in enumerate(_WORDS, 1) if words.search(title[:TITLE_CHARS])]
    return number if number in ranks else next(iter(ranks), 0)


def _find_by_words(headings: Sequence[Heading]) -> Sequence[Heading]:
    """The best run of headings in ascending order; none if too few are recognised.

    The run with the most headings recognised by words wins; among equal ones the longest.
    """
    best: dict[int, tuple[Heading, ...]] = {}
    for heading in headings:
        place = heading.rank or heading.number
        if 0 < place <= len(_WORDS):
            before = max((best.get(other, ()) for other in range(place)), key=_weigh)
            best[place] = max(best.get(place, ()), (*before, heading), key=_weigh)
    run = max(best.values(), key=_weigh, default=())
    return run if _weigh(run) >= (LEAST_KNOWN, LEAST_PARTS) else ()


def _weigh(run: Sequence[Heading]) -> tuple[int, int]:
    return sum(heading.rank > 0 for heading in run), len(run)


def _find_by_order(headings: Sequence[Heading]) -> Sequence[Heading]:
    """Four headings of the same style in a language that is not listed above; none if they may be something else.

    A list of steps and a final answer look similar, so more is required. If the script is unknown, four headings of one
    style suffice. In a known script, they must have the numbers 1 to 4, and the first two titles must each join two
    things with the same word, which none of the known languages has. Emoji do not count as letters.
    """
    for style in dict.fromkeys(heading.style for heading in headings):
        alike = [heading for heading in headings if heading.style == style]
        numbers = [heading.number for heading in alike]
        letters = {char for heading in alike for char in heading.title if char.isalpha() and not char.isascii()}
        is_unknown = any(unicodedata.name(char, "").split(" ")[0] not in _KNOWN_SCRIPTS for char in letters)
        are_numbered = numbers == [1, 2, 3, 4] and (is_unknown or _joins_alike(alike[0].title, alike[1].title))
        are_four = numbers == [0, 0, 0, 0] and is_unknown and style != "label"
        if (are_numbered or are_four) and alike[0].line <= PREFACE_LINES:
            return alike
    return ()


def _joins_alike(first: str, second: str) -> bool:
    """Whether both titles contain the same inner word, and it is not a joining word of a known language."""
    return bool(set(first.lower().split()[1:-1]) & set(second.lower().split()[1:-1]) - _JOINING)
