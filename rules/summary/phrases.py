"""Phrases that show that an answer is not a note: it refuses, goes on with the task, reports to the user, or is empty.

Law: each phrase is only matched at the place where such an answer has it, at the beginning of a text or of a sentence.
The languages are those in which models often answer so. The text must be in NFKC form with straight apostrophes.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable

REFUSAL = re.compile(
    r"""\W*(?:
    i\s*'?\s*a?m\s+(?:\w+\s+)?(?:sorry|afraid|unable|not\ (?:able|allowed))\b(?!\ for)
    |(?:i\ )?(?:apologi[sz]e|must\ decline)\b(?!\ for)|my\ apologies\b(?!\ for)|sorry\W+(?:but|i|this|that|we)\b
    |(?:unfortunately|regrettably)\W+(?:i|we|this)\b
    |(?:i|we)\ (?:can\s?no[tn]|can't|won't|will\ not|refuse|do(?:n't|\ not)\ have|have\ no\b)
    |as\ an?\ (?:ai|large\ language|language)\b
    |lo\ siento|no\ puedo|lamento|(?:es\ )?tut\ mir\ leid|leider\ |ich\ kann\ (?:\w+\ ){0,3}nicht
    |désolée?|je\ suis\ désolé|je\ ne\ peux|mi\ dispiace|non\ posso|desculpe|não\ posso
    |извините|к\ сожалению|я\ не\ могу|(?:很|非常)?(?:抱歉|遗憾)|对不起|對不起|我(?:无法|無法|不能)|无法|申し訳|죄송
    )""",
    re.VERBOSE | re.IGNORECASE,
)
GOES_ON = re.compile(
    r"""\W{0,40}(?:(?:sure|okay|ok|alright|certainly|of\ course|great|got\ it|understood|now|next|first
    |then)\b\W{0,40}){0,9}
    (?:let\ me|let's|i'll|i\ will|i'm\ going\ to|i\ am\ going\ to|i\ need\ to|i\ should|i've|i\ have|i(?=\ \w+\ the)
    |continuing|proceeding|my\ plan|(?:the\ |current\ )*plan:|here(?:'s|\ is)\ (?:my|the|what)\ (?:plan|i)
    |ich\ werde|lass(?:en\ sie)?\ (?:mich|uns)|als\ nächstes|weiter\ geht|voy\ a|vamos\ a|déjame|a\ continuación
    |je\ vais
    |laissez-moi|vou|vamos|ora\ |adesso|сначала|теперь|давайте|я\ (?:сделаю|буду|начну)|продолж)\b
    |\W{0,40}(?:(?:好的|好|当然|當然|明白了?|没问题)\W{0,9})?(?:接下来|接下來|下面|现在|現在|首先|让我|讓我|我来|我來|我将|我將|我会|我會|我先|我们|继续|繼續)
    |\W{0,40}(?:次に|まず|それでは|では|続けて|다음으로|이제|먼저|계속)
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""The beginning of a text in which the agent goes on with the task."""
REPORTS = re.compile(
    r"""\W{0,40}(?:(?:all\ )?(?:done|finished|fixed|completed|set)\b\W|all\ (?:the\ )?(?:tests|work|changes)\b
    |the\ (?!task|goal|aim|user|project)\w+\ (?:is|are|was)\b
    |(?:i|we)(?:'ve|\ have)?\ (?:now\ |just\ )?(?:\w+ed|made|done|built|written|wrote)\b|everything\ (?:is|works)
    |fertig|erledigt|geschafft|ich\ habe|listo|hecho|terminado|he\ \w+do\b|terminé|c'est\ (?:fait|terminé)|j'ai
    |pronto|feito
    |concluído|fatto|ho\ \w+to\b|готово|сделано|я\ \w+л[аи]?\b
    |(?:任务|任務|全部|已经|已經|都|修复|修改)?(?:完成|做好|搞定|修好)了|已(?:经|經)?完成|完了しました|できました|완료(?:했|되|하)|끝났)""",
    re.VERBOSE | re.IGNORECASE,
)
"""The beginning of a report to the user at the end of the task."""
ASKS_BACK = re.compile(
    r"""(?:let\ me\ know|would\ you\ like|do\ you\ want|shall\ i|should\ i|want\ me\ to|feel\ free|anything\ else
    |hope\ (?:this|that)
    |if\ you(?:'d|\ would|\ want|\ need|\ have)|sag(?:en\ sie)?\ (?:mir\ )?bescheid|möchte(?:st\ du|n\ sie)|soll\ ich
    |¿(?:quieres|te|le|desea)|dime\b|avísame|n'hésite|souhaite(?:z|s)|voulez|veux-tu|quer\ que|me\ avise|vuoi\ che
    |fammi\ sapere
    |хотите|дайте\ знать|请告诉我|請告訴我|如果(?:你|您)|需要我|是否需要|いかがですか|お知らせ|알려\ ?주)""",
    re.VERBOSE | re.IGNORECASE,
)
"""A question or an offer to the user; such answers have it in their last lines."""
NAMES_NOTE = re.compile(
    r"""\b(?:hand-?\s?(?:off|over)|note|notes|summary|summari[sz]|notiz|übergabe|zusammenfass|resumen|nota\b|relevo
    |résumé|passation
    |resumo|riassunto|passaggio|заметк|сводк|передач|резюме)
    |交接|笔记|筆記|摘要|总结|總結|纪要|引き継ぎ|引継|要約|メモ|まとめ|인계|요약|메모""",
    re.VERBOSE | re.IGNORECASE,
)
"""Words for a note or a summary. A preface with one of them introduces a note, even if it sounds like a report."""

_NOTHING = re.compile(
    r"""\W*(?:(?:no|none|nothing|nil|unknown|not|n/?a|there\ (?:is|are|was|were)\ (?:no|nothing|none)|tbd|to\ be\ \w+
    |(?:the|this)\ (?:transcript|conversation)\ (?:is|was)\ (?:empty|missing|not)
    |please\ (?:provide|share|send|give|paste)|kein\w*|nichts?|es\ gibt\ kein\w*|bitte\ (?:geben|senden|teilen)
    |ning[uú]n\w*|nada|no\ hay|aucune?|rien|il\ n'y\ a|nenhum\w*|não\ há|nessun\w*|niente|geen|niets|brak|inget|inga|yok
    |нет|ничего|не\ указан\w*|отсутств\w*|không|tidak\ ada)\b
    |(?:目前|暂时|这部分|此部分)?(?:无|無|没有|沒有|暂无|未知|不适用|未提供)
    |请(?:提供|发送)|請提供|特になし|なし|ありません|該当|없음|없습니다|해당|لا\ )""",
    re.VERBOSE | re.IGNORECASE,
)
"""The beginning of a sentence that says that there is nothing."""
_DATA = re.compile(r"[\d`_/\\=]|\w\.\w")
"""Signs that a sentence is about something specific, such as a number or a path."""
_PLACEHOLDER = re.compile(r"[ \t]{0,8}[-*•>]?[ \t]{0,8}(?:\[[^\]\n]{9,}\]|<[^>\n]{9,}>|\{[^}\n]{9,}\})[ \t.]*")
"""A line of words in brackets: an unfilled place of a template."""
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n")


def split_sentences(text: str) -> set[str]:
    """The distinct sentences of a text, without bullets and white space around them. A line break ends a sentence."""
    return {sentence.strip(" \t-*•>#|") for sentence in _SENTENCE_END.split(text)}


def count_said(bodies: Iterable[str], told: frozenset[str]) -> int:
    """Count the letters and digits of the sentences that carry information of their own.

    A sentence does not count if it is one of `told`, if two bodies have it, if it says that there is nothing, if it
    refuses, or if it is an unfilled place of a template.
    """
    times: Counter[str] = Counter()
    for body in bodies:
        lines = "\n".join(line for line in body.splitlines() if not _is_placeholder(line))
        times.update(split_sentences(lines) - told)
    return sum(_count_letters(said) for said, number in times.items() if number == 1 and _says_something(said))


def _is_placeholder(line: str) -> bool:
    return " " in line.strip() and _PLACEHOLDER.fullmatch(line) is not None and '"' not in line


def _says_something(sentence: str) -> bool:
    if _DATA.search(sentence):
        return True
    return _NOTHING.match(sentence) is None and REFUSAL.match(sentence) is None


def _count_letters(sentence: str) -> int:
    """The letters and digits of a sentence, in units of one Latin letter.

    A CJK ideograph counts three, as it carries about that much; a Korean or Japanese syllable counts two. Chosen.
    """
    return sum(_weigh(char) for char in sentence if char.isalnum())


def _weigh(char: str) -> int:
    if char.isascii() or unicodedata.east_asian_width(char) != "W":
        return 1
    return 3 if unicodedata.name(char, "").startswith("CJK") else 2
