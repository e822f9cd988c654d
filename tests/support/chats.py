"""Long chats with one fact per turn and small talk around it. The user and the assistant tell facts alternately.

Law: a chat is a function of its seed, its length and its language. The value of each fact appears nowhere else.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

from support.builders import Wire

NEAR_CHARS = 120
"""A summary keeps a fact if its subject is at most this far from its value. From farther away, a reader cannot connect
the two."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact that was told. `about` is the word of the sentence that names the subject of `value`."""

    about: str
    value: str
    is_users: bool

    def stands_in(self, body: str) -> bool:
        """Whether the value appears with its subject near it."""
        found = re.finditer(rf"(?<![A-Za-z0-9]){re.escape(self.value)}(?![A-Za-z0-9])", body)
        around = (body[max(match.start() - NEAR_CHARS, 0) : match.end() + NEAR_CHARS] for match in found)
        return any(self.about.lower() in text.lower() for text in around)


@dataclass(frozen=True, slots=True)
class Language:
    """The sentences of a language.

    kinds: pairs of a sentence with {about} and {value}, and the name of the kind of value.
    users_frames, assistants_frames: sentences around a {fact}.
    users_talk, assistants_talk: small talk of one speaker.
    talk: small talk of both, with {topic} and {mood}.
    """

    subjects: tuple[str, ...]
    kinds: tuple[tuple[str, str], ...]
    users_frames: tuple[str, ...]
    assistants_frames: tuple[str, ...]
    users_talk: tuple[str, ...]
    assistants_talk: tuple[str, ...]
    tastes: tuple[str, ...]
    people: tuple[str, ...]
    places: tuple[str, ...]
    months: tuple[str, ...]
    date: str
    talk: tuple[str, ...]
    topics: tuple[str, ...]
    moods: tuple[str, ...]
    blank: str = " "


ENGLISH = Language(
    subjects=(
        "billing", "staging", "invoice", "harbour", "archive", "payroll", "newsletter", "inventory", "telemetry",
        "checkout", "warehouse", "marketing", "onboarding", "compliance", "catalogue", "scheduler", "workshop",
        "retreat", "audit", "migration", "translation", "podcast", "greenhouse", "library", "kitchen", "insurance",
        "vendor", "festival", "laboratory", "orchestra",
    ),
    kinds=(
        ("the {about} database runs on {value}", "host"),
        ("the {about} service listens on port {value} behind the proxy", "number"),
        ("the {about} review is planned for {value}", "date"),
        ("the {about} contract costs {value} a month", "price"),
        ("{value} is responsible for the {about} team from now on", "person"),
        ("we meet for the {about} talks in {value}", "place"),
        ("for the {about} dinner everybody prefers {value}", "taste"),
        ("we will use {value} for {about} because it is easier to operate", "tool"),
        ("the ticket about {about} has the number {value}", "ticket"),
        ("for {about} the option `{value}` has to be switched off", "option"),
        ("the {about} budget was cut to {value} for this year", "price"),
        ("questions on {about} go to {value} and to nobody else", "mail"),
        ("the {about} backups are written to {value} every night", "path"),
        ("I found that the {about} tests take {value} seconds since the last change", "number"),
        ("the deadline of {about} moved to {value}", "date"),
    ),
    users_frames=(
        "By the way, {fact}, in case that comes up again.",
        "Just so you know, {fact}.",
        "I talked to the others this morning and it turns out that {fact}.",
        "One more thing that I should have told you before: {fact}.",
        "Please remember that {fact}, because I will need it later on.",
        "It took me a while to find out, but {fact}.",
        "{fact}.",
        "Oh, and before I forget it again, {fact}, at least that is what they told me.",
    ),
    assistants_frames=(
        "From what you have sent me, {fact}.",
        "I looked it up for you: {fact}.",
        "As far as I can see, {fact}, which fits with everything that you said so far.",
        "That makes sense, and {fact}.",
        "{fact}.",
        "Having gone through the notes again, I can confirm that {fact}.",
        "To sum up where we are: {fact}, so there is nothing left to do on that side.",
        "Good question. In short, {fact}, and I would leave it like that for now.",
    ),
    users_talk=(
        "Thanks, that helps a lot.", "Okay, sounds good to me.", "Hm, let me think about that for a moment.",
        "How would you go about it?", "I am not sure yet what to do with this.", "What do you think?",
        "It has been a long day and the coffee is cold.", "Great, let us go on then.", "Could you say that again?",
        "That is more or less what I expected.", "Right, I had hoped for something else.", "Good morning!",
        "Sorry, I was away for a while.", "Does that make sense to you?", "Nice, I like where this is going.",
    ),
    assistants_talk=(
        "You are welcome!", "I am happy to help with that.", "Let me know if you want me to go into more detail.",
        "That is a good point.", "Sure, we can take it step by step.", "Would you like me to write that down for you?",
        "There are several ways to look at this, and all of them have their merits.", "Of course.",
        "It depends on what matters most to you.", "Take your time, there is no hurry.", "Is there anything else?",
        "I would start with the simplest thing and see how far it carries.", "Understood.",
        "I hope that you get some rest this evening.", "That sounds like a reasonable plan to me.",
    ),
    tastes=(
        "oat milk", "lentil soup", "rye bread", "ginger tea", "plum cake", "goat cheese", "roasted fennel",
        "pickled beets", "almond ice cream", "barley salad", "smoked trout", "chestnut puree",
    ),
    people=(
        "Petra Lindqvist", "Tomas Okafor", "Ines Marchetti", "Rajiv Menon", "Hanna Sorensen", "Luc Baptiste",
        "Mira Kowalski", "Owen Fairbanks", "Yuki Tanabe", "Dolores Quintana", "Anton Vasiliev", "Greta Holm",
    ),
    places=(
        "Trondheim", "Valparaiso", "Ghent", "Szeged", "Dunedin", "Tallinn", "Oaxaca", "Aarhus", "Matera", "Leiden",
        "Nagasaki", "Galway",
    ),
    months=("January", "March", "May", "August", "October", "December"),
    date="{day} {month}",
    talk=(
        "Talking of {topic}, I must say that I find it rather {mood} these days.",
        "My neighbour always says that {topic} makes people {mood}, and I think there is something in it.",
        "I read an article on {topic} over the weekend, and it left me quite {mood}.",
        "It is a bit like {topic}: nobody expects much of it, and then everybody is {mood}.",
        "When you think about {topic} for long enough, it becomes {mood} all by itself.",
        "Some people would call {topic} {mood}, others would not even notice it.",
    ),
    topics=(
        "gardening", "the weather", "old films", "train travel", "good bread", "winter mornings", "house plants",
        "cycling", "crossword puzzles", "street music", "long meetings", "paper maps", "bird watching", "chess",
        "handwriting", "public holidays", "swimming", "board games", "small talk", "open windows",
    ),
    moods=(
        "cheerful", "confusing", "hopeful", "sleepy", "restless", "curious", "patient", "nostalgic", "grumpy", "calm",
        "surprising", "tiring", "charming", "puzzling", "delightful",
    ),
)  # fmt: skip

GERMAN = Language(
    subjects=(
        "Abrechnung", "Testumgebung", "Rechnung", "Hafen", "Archiv", "Lohnbuchhaltung", "Rundbrief", "Lager",
        "Messwerte", "Kasse", "Werkstatt", "Werbung", "Einarbeitung", "Katalog", "Zeitplan", "Klausur", "Umzug",
        "Bibliothek", "Versicherung", "Fest", "Labor", "Orchester", "Garten", "Verein", "Schulung",
    ),
    kinds=(
        ("die Datenbank für {about} läuft auf {value}", "host"),
        ("der Dienst für {about} lauscht auf Port {value}", "number"),
        ("die Besprechung zu {about} ist am {value}", "date"),
        ("der Vertrag für {about} kostet {value} im Monat", "price"),
        ("{value} ist ab jetzt für {about} zuständig", "person"),
        ("wir treffen uns wegen {about} in {value}", "place"),
        ("beim Essen zu {about} möchten alle lieber {value}", "taste"),
        ("wir nehmen {value} für {about}, weil es einfacher zu betreiben ist", "tool"),
        ("das Ticket zu {about} hat die Nummer {value}", "ticket"),
        ("für {about} muss die Option `{value}` abgeschaltet werden", "option"),
        ("Fragen zu {about} gehen an {value} und an niemanden sonst", "mail"),
        ("die Sicherungen von {about} liegen jede Nacht unter {value}", "path"),
        ("der Termin für {about} wurde auf den {value} verschoben", "date"),
    ),
    users_frames=(
        "Übrigens, {fact}, falls das noch einmal vorkommt.",
        "Nur damit du es weißt: {fact}.",
        "Ich habe heute Morgen mit den anderen gesprochen, und {fact}.",
        "Bitte merke dir, {fact}, denn ich brauche das später noch.",
        "{fact}.",
        "Ach, und bevor ich es wieder vergesse, {fact}, so wurde es mir jedenfalls gesagt.",
    ),
    assistants_frames=(
        "Nach dem, was du geschickt hast: {fact}.",
        "Ich habe es für dich nachgesehen: {fact}.",
        "Soweit ich sehen kann, gilt: {fact}, und das passt zu allem, was du bisher gesagt hast.",
        "{fact}.",
        "Kurz gesagt, {fact}, und ich würde es vorerst so lassen.",
        "Ich bin die Notizen noch einmal durchgegangen und kann bestätigen: {fact}.",
    ),
    users_talk=(
        "Danke, das hilft mir sehr.", "Gut, klingt vernünftig.", "Hm, darüber muss ich kurz nachdenken.",
        "Wie würdest du das angehen?", "Ich weiß noch nicht, was ich damit machen soll.", "Was meinst du?",
        "Es war ein langer Tag und der Kaffee ist kalt.", "Prima, dann machen wir weiter.", "Guten Morgen!",
        "Das habe ich mir schon fast gedacht.", "Kannst du das noch einmal sagen?", "Das gefällt mir gut.",
    ),
    assistants_talk=(
        "Gern geschehen!", "Dabei helfe ich gern.", "Sag Bescheid, wenn ich mehr ins Einzelne gehen soll.",
        "Das ist ein guter Hinweis.", "Klar, wir gehen Schritt für Schritt vor.", "Soll ich das für dich aufschreiben?",
        "Man kann das auf verschiedene Weise sehen, und jede hat ihre Vorzüge.", "Natürlich.",
        "Lass dir Zeit, es eilt nicht.", "Gibt es sonst noch etwas?", "Verstanden.",
        "Ich würde mit dem Einfachsten anfangen und sehen, wie weit das trägt.",
    ),
    tastes=(
        "Hafermilch", "Linsensuppe", "Roggenbrot", "Ingwertee", "Pflaumenkuchen", "Ziegenkäse", "Fenchel",
        "Gerstensalat", "Räucherforelle", "Kastanienpüree",
    ),
    people=ENGLISH.people,
    places=ENGLISH.places,
    months=("Januar", "März", "Mai", "August", "Oktober", "Dezember"),
    date="{day}. {month}",
    talk=(
        "Apropos {topic}, das finde ich zur Zeit ziemlich {mood}.",
        "Mein Nachbar sagt immer, {topic} mache die Leute {mood}, und da ist etwas dran.",
        "Am Wochenende habe ich einen Artikel über {topic} gelesen, der war recht {mood}.",
        "Das ist ein wenig wie {topic}: keiner erwartet viel davon, und dann sind alle {mood}.",
        "Manche würden {topic} {mood} nennen, andere würden es nicht einmal bemerken.",
    ),
    topics=(
        "Gartenarbeit", "das Wetter", "alte Filme", "Bahnreisen", "gutes Brot", "Zimmerpflanzen", "Radfahren",
        "Kreuzworträtsel", "Straßenmusik", "lange Sitzungen", "Landkarten", "Schach", "Handschrift", "Feiertage",
        "Schwimmen", "Brettspiele", "offene Fenster",
    ),
    moods=(
        "heiter", "verwirrend", "hoffnungsvoll", "schläfrig", "unruhig", "neugierig", "geduldig", "mürrisch", "ruhig",
        "überraschend", "anstrengend", "reizend", "rätselhaft",
    ),
)  # fmt: skip

CHINESE = Language(
    subjects=(
        "账单", "测试", "发票", "港口", "档案", "工资", "简报", "库存", "监控", "收银", "仓库", "营销", "培训", "目录",
        "排期", "研讨会", "审计", "迁移", "翻译", "播客",
        "温室", "图书馆", "厨房", "保险", "供应商", "音乐节", "实验室",
    ),
    kinds=(
        ("{about}的数据库部署在{value}上", "host"),
        ("{about}服务监听的端口是{value}", "number"),
        ("{about}的评审定在{value}", "date"),
        ("{about}的合同每个月要{value}", "price"),
        ("{about}小组以后由{value}负责", "person"),
        ("{about}的会议我们在{value}开", "place"),
        ("{about}的聚餐大家更想吃{value}", "taste"),
        ("{about}我们决定用{value}，因为它更容易维护", "tool"),
        ("{about}的工单编号是{value}", "ticket"),
        ("{about}需要把`{value}`这个选项关掉", "option"),
        ("{about}的问题请发给{value}", "mail"),
        ("{about}的备份每晚写到{value}", "path"),
        ("{about}的截止日期改到了{value}", "date"),
    ),
    users_frames=(
        "顺便说一下，{fact}，以后可能还会用到。", "告诉你一声，{fact}。", "我今天早上和他们聊过，{fact}。",
        "请记住，{fact}，我之后会需要它。", "{fact}。", "对了，趁我还没忘，{fact}，至少他们是这么说的。",
    ),
    assistants_frames=(
        "根据你发来的内容，{fact}。", "我帮你查过了，{fact}。", "就我所看到的，{fact}，这和你之前说的一致。",
        "{fact}。", "简单来说，{fact}，目前先这样就好。", "我又看了一遍笔记，可以确认{fact}。",
    ),
    users_talk=(
        "谢谢，这很有帮助。", "好的，听起来不错。", "嗯，让我想一想。",
        "你会怎么做？", "我还不确定该怎么办。", "你觉得呢？",
        "今天真累，咖啡都凉了。", "太好了，我们继续吧。", "早上好！", "和我想的差不多。", "能再说一遍吗？",
    ),
    assistants_talk=(
        "不客气！", "很高兴能帮到你。", "如果需要更多细节请告诉我。", "这个想法不错。", "没问题，我们一步一步来。",
        "需要我帮你记下来吗？", "这件事可以从好几个角度来看，各有各的道理。", "当然。", "慢慢来，不着急。",
        "还有别的事吗？", "明白了。", "我建议先从最简单的开始，看看效果怎么样。",
    ),
    tastes=("燕麦奶", "扁豆汤", "黑麦面包", "姜茶", "李子蛋糕", "山羊奶酪", "烤茴香", "大麦沙拉", "熏鳟鱼", "栗子泥"),
    people=(
        "欧阳明轩", "司马若兰", "诸葛文涛", "慕容雪琴", "陈梓豪", "林晓蕾", "郭子墨", "沈若溪", "韩雨桐", "魏书恒",
        "苏婉清", "贺知远",
    ),
    places=("大理", "敦煌", "威海", "绍兴", "喀什", "平遥", "丽江", "承德", "泉州", "镇江", "赣州", "漠河"),
    months=("1", "3", "5", "8", "10", "12"),
    date="{month}月{day}日",
    talk=(
        "说到{topic}，我最近觉得挺{mood}的。", "我邻居总说{topic}会让人变得{mood}，我觉得有点道理。",
        "周末我读了一篇关于{topic}的文章，读完感觉很{mood}。", "这有点像{topic}，一开始没人在意，后来大家都很{mood}。",
        "有人会说{topic}很{mood}，也有人根本不会注意到。",
    ),
    topics=(
        "园艺", "天气", "老电影", "坐火车", "面包", "冬天的早晨",
        "盆栽", "骑车", "填字游戏", "街头音乐", "开会", "观鸟",
        "下棋", "书法", "放假", "游泳", "桌游",
    ),
    moods=("开心", "困惑", "期待", "犯困", "焦躁", "好奇", "耐心", "怀旧", "平静", "意外", "疲惫", "有趣"),
    blank="",
)  # fmt: skip

WORDS = ("otter", "pelican", "juniper", "basalt", "marlin", "saffron", "tundra", "walnut")
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
LANGUAGES = {"English": ENGLISH, "German": GERMAN, "Chinese": CHINESE}


def make_chat(language: Language, *, turns: int = 150, seed: int = 1) -> tuple[list[Wire], list[Fact]]:
    """A system message and `turns` pairs of user and assistant messages, and the facts in them, one per turn."""
    random = Random(seed)  # noqa: S311  # not for secrets
    facts = [_make_fact(language, number, random) for number in range(turns)]
    messages: list[Wire] = [{"role": "system", "content": "You are a friendly and precise assistant."}]
    for number, (_, sentence) in enumerate(facts):
        for is_users in (True, False):
            told = sentence if is_users == (number % 2 == 0) else None
            messages.append(
                {
                    "role": "user" if is_users else "assistant",
                    "content": _speak(language, told, random, is_users=is_users),
                }
            )
    return messages, [fact for fact, _ in facts]


def count_facts(facts: Iterable[Fact], body: str) -> tuple[int, int]:
    """How many of the user's facts appear in a body, and how many of the assistant's."""
    standing = [fact.is_users for fact in facts if fact.stands_in(body)]
    return sum(standing), len(standing) - sum(standing)


def _make_fact(language: Language, number: int, random: Random) -> tuple[Fact, str]:
    about = language.subjects[(number * 7 + random.randrange(3)) % len(language.subjects)]
    pattern, kind = language.kinds[random.randrange(len(language.kinds))]
    value = _make_value(language, kind, number, random)
    is_users = number % 2 == 0
    frame = random.choice(language.users_frames if is_users else language.assistants_frames)
    sentence = frame.format(fact=pattern.format(about=about, value=value))
    return Fact(about, value, is_users), sentence[:1].upper() + sentence[1:]


def _make_value(language: Language, kind: str, number: int, random: Random) -> str:
    """A value of this kind. It contains the fact's number, so no two facts have the same value."""
    word = random.choice(WORDS)
    first, second = divmod(number, 12)
    letter = LETTERS[first % len(LETTERS)]
    round_number = "" if first < len(LETTERS) else str(first)
    values = {
        "host": f"{word}-{number}.example.net",
        "number": str(2000 + number * 37),
        "date": language.date.format(day=1 + number % 28, month=random.choice(language.months)),
        "price": f"{number + 3}{random.randrange(100):02},{random.choice(('50', '90'))} €",
        "person": language.people[second] + (f" {letter}{round_number}." if first else ""),
        "place": f"{language.places[second]}{language.blank}{random.choice('ABCDEF')}{first}",
        "taste": f"{language.tastes[number % len(language.tastes)]}{language.blank}"
        f"({language.places[first % 12]}{f' {number // 144}' if number >= 144 else ''})",
        "tool": random.choice(("Postgres", "Redis", "Kafka", "Nomad", "Caddy", "Vector")) + f" {first + 3}.{second}",
        "ticket": f"{word[:3].upper()}-{4000 + number}",
        "option": f"{word}_retry_{number}",
        "mail": f"{word}{number}@example.org",
        "path": f"/srv/{word}/{number}/dump",
    }
    return values[kind]


def _speak(language: Language, told: str | None, random: Random, *, is_users: bool) -> str:
    """A message: the fact, if any, between sentences of small talk."""
    talk = language.users_talk if is_users else language.assistants_talk
    said = random.sample(talk, k=random.randrange(1, 4))
    for pattern in random.sample(language.talk, k=random.randrange(3)):
        said.append(pattern.format(topic=random.choice(language.topics), mood=random.choice(language.moods)))
    if told is not None:
        said.insert(random.randrange(len(said) + 1), told)
    return language.blank.join(said)
