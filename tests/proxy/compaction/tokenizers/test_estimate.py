"""Tokens by bytes alone. Accuracy on held-out corpora is scripts/fit_estimate.py's to show; these are the laws."""

import base64
import random
import sys
from importlib import resources
from subprocess import run

import msgspec
import numpy as np
import pytest
import tiktoken
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.compaction.tokenizers import estimate
from proxy.compaction.tokenizers.estimate import PAIRS, Estimator
from proxy.compaction.tokenizers.exact import load_encoding, split_text

VOCABULARIES = ("o200k_base", "cl100k_base")
DICE = random.Random(7)  # noqa: S311 - to be repeatable, not secret

ENGLISH = """The proxy keeps the newest turns as they are and folds the older ones into a summary. Nobody waits for it:
while the answer streams to the client, another request asks a small model what mattered. Should that one fail, the
conversation is sent as it came. A week later the same session may come back, and what was folded is still at hand."""
PROSE = {
    "German": """Der Vertreter hält die neuesten Beiträge unverändert und faltet die älteren zu einer Zusammenfassung.
Niemand wartet darauf: Während die Antwort beim Kunden ankommt, fragt eine zweite Anfrage ein kleines Modell danach.""",
    "French": """Le serveur garde les derniers échanges tels quels et replie les plus anciens dans un résumé. Personne
ne doit attendre : pendant que la réponse arrive, une autre requête demande à un petit modèle ce qui compte.""",
    "Spanish": """El servidor conserva los últimos mensajes tal cual y reúne los anteriores en un resumen breve. Nadie
tiene que esperar: mientras llega la respuesta, otra petición pregunta a un modelo pequeño qué era importante.""",
    "Russian": """Сервер оставляет последние сообщения без изменений и сворачивает более старые в краткий пересказ.
Никто не ждёт: пока ответ идёт к клиенту, другой запрос спрашивает небольшую модель, что было важно.""",
    "Chinese": """如果找不到指定的文件,请检查路径,然后重新运行该命令。程序启动时会读取配置文件;
无法打开时,将显示错误信息并使用默认设置。您可以在菜单中更改语言和字体大小。""",
    "Japanese": """ファイルが見つからない場合は、パスを確認してからもう一度コマンドを実行してください。
起動時に設定ファイルが読み込まれます。開けないときはエラーが表示され、既定の設定が使われます。""",
    "Korean": """파일을 찾을 수 없으면 경로를 확인한 다음 명령을 다시 실행하십시오.
프로그램은 시작할 때 설정 파일을 읽습니다. 열 수 없으면 오류 메시지를 표시하고 기본 설정을 사용합니다.""",
    "Arabic": """إذا لم يتم العثور على الملف فتحقق من المسار ثم أعد تشغيل الأمر.
يقرأ البرنامج ملف الإعدادات عند بدء التشغيل. إذا تعذر فتحه تظهر رسالة خطأ وتستخدم الإعدادات الافتراضية.""",
    "Hindi": """यदि फ़ाइल नहीं मिलती है तो पथ की जाँच करें और आदेश फिर से चलाएँ।
प्रोग्राम शुरू होते समय सेटिंग फ़ाइल पढ़ता है। यदि उसे खोला नहीं जा सकता तो त्रुटि संदेश दिखाया जाता है।""",
}


def log_line() -> str:
    path, code = DICE.choice(["items", "users/7/orders", "health"]), DICE.choice([200, 200, 404, 500])
    time = (
        f"2025-03-{DICE.randint(1, 28):02} 12:{DICE.randrange(60):02}:{DICE.randrange(60):02},{DICE.randrange(999):03}"
    )
    return (
        f"{time} INFO worker-{DICE.randrange(9)} GET /v1/{path} {code} in {DICE.random():.3f}s from 10.0.{code % 7}.4\n"
    )


def record() -> dict[str, object]:
    name = "".join(DICE.choice(["ma", "ri", "to", "ne", "la", "son"]) for _ in range(3)).title()
    return {
        "id": DICE.randrange(10**6),
        "customer": {"name": name, "email": f"{name.lower()}@example.com", "is_active": DICE.random() < 0.5},
        "total": round(DICE.random() * 1000, 2),
        "created_at": f"2025-0{DICE.randint(1, 9)}-{DICE.randint(10, 28)}T10:{DICE.randint(10, 59)}:00Z",
    }


CODE = "".join(
    resources.files("proxy").joinpath(name).read_text()
    for name in ("exchange/serve.py", "server/app.py", "wire/chat/answer.py")
)
TEXTS = {
    "English": ENGLISH,
    "code": CODE,
    "JSON": msgspec.json.encode([record() for _ in range(80)]).decode(),
    "pretty JSON": msgspec.json.format(msgspec.json.encode([record() for _ in range(80)])).decode(),
    "logs": "".join(log_line() for _ in range(80)),
    "base64": base64.b64encode(DICE.randbytes(6_000)).decode(),
    "hex": DICE.randbytes(4_000).hex(),
    "a chat request": msgspec.json.encode({"messages": [{"role": "user", "content": CODE}]}).decode(),
}


@pytest.fixture(scope="module", params=VOCABULARIES)
def vocabulary(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def estimator(vocabulary) -> Estimator:
    return Estimator(vocabulary)


@pytest.fixture(scope="module")
def exact(vocabulary) -> tiktoken.Encoding:
    return load_encoding(vocabulary)


def count(exact: tiktoken.Encoding, text: str) -> int:
    return sum(len(exact.encode_ordinary(piece)) for piece in split_text(text))


def test_the_file_has_weights_of_both_vocabularies(vocabulary) -> None:
    """One weight for each pair of bytes, none of them negative, infinite or no number at all."""
    with (
        resources.files("proxy.compaction.tokenizers").joinpath("vocabulary", "bigrams.npz").open("rb") as file,
        np.load(file) as weights,
    ):
        assert set(weights) == set(VOCABULARIES)
        assert weights[vocabulary].shape == (PAIRS,)
        assert np.isfinite(weights[vocabulary]).all()
        assert (weights[vocabulary] >= 0).all()


def test_a_vocabulary_without_weights_is_refused() -> None:
    """It raises KeyError: no other vocabulary's weights stand in."""
    with pytest.raises(KeyError):
        Estimator("p50k_base")


def test_importing_the_module_does_not_import_numpy() -> None:
    """Who never estimates does not pay for numpy."""
    program = "import sys, proxy.compaction.tokenizers.estimate; sys.exit('numpy' in sys.modules)"

    assert run([sys.executable, "-c", program], check=False, timeout=30).returncode == 0


def test_nothing_is_nothing(estimator) -> None:
    """An empty text has no tokens, for certain."""
    assert estimator.estimate_tokens(b"") == 0
    assert estimator.bound_tokens(b"") == 0


@given(data=st.binary(max_size=2_000))
@example(data=b"a")
def test_a_bound_lies_between_nothing_and_the_bytes(estimator, data) -> None:
    """Whatever the bytes, text or not: 0 <= bound <= bytes, and an estimate is never negative."""
    assert estimator.estimate_tokens(data) >= 0
    assert 0 <= estimator.bound_tokens(data) <= len(data)


@given(data=st.binary(max_size=500), size=st.integers(1, 9))
def test_slicing_changes_nothing(estimator, data, size) -> None:
    """However small the slices, the sum is that of all pairs."""
    whole = estimator.estimate_tokens(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(estimate, "SLICE_PAIRS", size)

        assert estimator.estimate_tokens(data) == pytest.approx(whole, rel=1e-4)


@given(data=st.binary(max_size=500), at=st.integers(0, 500))
def test_a_pair_costs_the_same_at_an_even_and_an_odd_place(estimator, data, at) -> None:
    """A text behind a line break costs what it costs alone, and the line break."""
    line = bytes([65 + at % 26]) * (at % 7) + b"\n"

    together = estimator.estimate_tokens(line + data)

    assert together == pytest.approx(estimator.estimate_tokens(line) + estimator.estimate_tokens(data), rel=1e-4)


@pytest.mark.parametrize("kind", TEXTS)
def test_what_agents_send_is_estimated_well(estimator, exact, kind) -> None:
    """English, code, data and logs within 15 %, and the bound is at least the count."""
    data, tokens = TEXTS[kind].encode(), count(exact, TEXTS[kind])

    assert estimator.estimate_tokens(data) == pytest.approx(tokens, rel=0.15)
    assert estimator.bound_tokens(data) >= tokens


@pytest.mark.parametrize("language", PROSE)
def test_prose_of_other_languages_is_rather_over_than_under_estimated(estimator, exact, language) -> None:
    """Plain prose costs less than the names, labels and rare words of its script: up to half may be too much."""
    data, tokens = PROSE[language].encode(), count(exact, PROSE[language])

    assert 0.85 * tokens <= estimator.estimate_tokens(data) <= 1.5 * tokens
    assert estimator.bound_tokens(data) >= tokens


@given(
    block=st.sampled_from([(0x20, 0x7F), (0x3040, 0x3100), (0x4E00, 0xA000), (0xAC00, 0xD7A4), (0x20, 0x110000)]),
    length=st.integers(200, 2_000),
    seed=st.integers(0, 10**6),
)
def test_a_bound_covers_random_texts(estimator, exact, block, length, seed) -> None:
    """ASCII, kana, Chinese characters, Hangul or all of Unicode, in no order that a language has."""
    dice = random.Random(seed)  # noqa: S311 - to be repeatable, not secret
    data = "".join(chr(dice.randrange(*block)) for _ in range(length)).encode(errors="ignore")

    assert estimator.bound_tokens(data) >= count(exact, data.decode())
