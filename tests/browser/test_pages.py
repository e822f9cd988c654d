"""Every page of the dashboard, in a real browser, with the content security policy that trimtab sends."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from browser.browsing import write_dollars
from browser.examples import CHANGES, HOSTILE
from browser.stub import PAGE
from playwright.async_api import expect

pytestmark = pytest.mark.asyncio(loop_scope="session")

MAX_BYTES = 150_000
ROUTES = ["#/", "#/sessions", "#/sessions/{session}", "#/requests", "#/requests/{request}"]


def fill(stub, route: str) -> str:
    """The route with the names of a session and of its newest request."""
    one = stub.sessions[0]
    return route.format(session=one.id, request=one.turns[-1]["request_id"])


@pytest.mark.parametrize(
    ("route", "scheme"), [*((route, "light") for route in ROUTES), (ROUTES[0], "dark"), (ROUTES[-1], "dark")]
)
async def test_axe_finds_nothing(stub, open_tab, route, scheme) -> None:
    """Also with all details open. Few requests, because axe-core looks at each cell of a table."""
    stub.keep_newest(12)
    stub.notes = [{"kind": "text", "text": "The text of messages is kept in memory."}]
    tab = await open_tab(stub.url, color_scheme=scheme)
    page = await tab.visit(fill(stub, route))
    await page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")

    assert await tab.check_axe() == []


async def test_a_narrow_window_scrolls_only_downwards(stub, open_tab) -> None:
    stub.keep_newest(12)
    tab = await open_tab(stub.url, viewport={"width": 360, "height": 740})
    for route in ROUTES:
        page = await tab.visit(fill(stub, route))
        await page.wait_for_function("document.documentElement.scrollWidth <= 360")


async def test_axe_finds_what_is_wrong(stub, open_tab) -> None:
    tab = await open_tab(stub.url, color_scheme="light")
    page = await tab.visit()
    await page.evaluate(
        "document.querySelector('h1').style.color = '#eee'; document.querySelector('h1').append(new Image())"
    )
    assert [one.partition(":")[0] for one in await tab.check_axe()] == ["color-contrast", "image-alt"]


async def test_the_page_is_small() -> None:
    """All files together, without compression."""
    assert sum(path.stat().st_size for path in PAGE.iterdir()) < MAX_BYTES


async def test_hostile_texts_are_shown_as_texts(stub, open_tab) -> None:
    one = stub.sessions[0]
    last = one.turns[-1]
    for turn in one.turns:
        turn.update(model=HOSTILE, label=HOSTILE, client=HOSTILE, outcome=HOSTILE)
    last.update(upstream=HOSTILE, story=[HOSTILE], error=HOSTILE, reason=HOSTILE)
    last["decisions"][0].update(rule=HOSTILE, reason=HOSTILE)
    stub.notes = [{"kind": HOSTILE, "text": HOSTILE}]
    stub.alarms = [{"kind": HOSTILE, "reason": HOSTILE, "remedy": HOSTILE}]
    tab = await open_tab(stub.url)
    for route in ROUTES:
        page = await tab.visit(fill(stub, route))
        await expect(page.locator("main")).to_contain_text(HOSTILE)
        await expect(page.locator("main img, main script")).to_have_count(0)
        assert await page.title() != "owned"


async def test_nothing_is_shown_yet_without_a_request(stub, open_tab) -> None:
    stub.sessions = []
    tab = await open_tab(stub.url)
    for route in ("#/", "#/sessions", "#/requests"):
        page = await tab.visit(route, wait="div.empty")
        text = await page.inner_text("main")
        assert "No request yet: point OPENAI_BASE_URL at trimtab and send one." in text
        assert f"export OPENAI_BASE_URL={stub.url.removesuffix('trimtab/')}v1" in text


@pytest.mark.parametrize(
    ("status", "told", "button"),
    [
        (401, "Reload the page and give it as the password", "Reload"),
        (500, "this page requires admin_token", "Try again"),
    ],
)
async def test_an_error_is_told_with_a_way_on(stub, open_tab, status, told, button) -> None:
    stub.refuses = status
    tab = await open_tab(stub.url, is_polite=False)  # the browser itself complains about the status
    page = await tab.visit(wait=".error")
    await expect(page.locator("[role=alert]")).to_contain_text(told)

    stub.refuses = 0
    await page.get_by_role("button", name=button).click()
    await page.wait_for_selector(".figures")
    await expect(page.locator(".error")).to_have_count(0)


@pytest.mark.parametrize("route", ["#/requests/none", "#/sessions/none", "#/nowhere"])
async def test_what_is_not_there_is_said(stub, open_tab, route) -> None:
    tab = await open_tab(stub.url, is_polite=False)
    page = await tab.visit(route, wait="main .empty a")
    await page.locator("main .empty a").click()
    await page.wait_for_selector("table >> visible=true")


async def test_a_changed_message_is_shown_before_and_after(stub, open_tab) -> None:
    tab = await open_tab(stub.url)
    page = await tab.visit(fill(stub, "#/requests/{request}"))
    change = page.locator("details.change", has_text="result of read_file")
    await change.locator("summary").click()
    await expect(change).to_contain_text("step_1()")  # the lines are drawn when it opens
    text = await change.inner_text()
    assert "\u2212     step_1()" in text
    assert "10 unchanged lines" in text
    assert "+ [trimtab: omitted lines 3-41" in text

    await change.get_by_role("button", name="As the client sent it").click()
    await expect(change.locator("pre")).to_contain_text("step_39()")
    await change.get_by_role("button", name="As the model sees it").click()
    await expect(change.locator("pre")).not_to_contain_text("step_39()")


async def test_a_session_is_erased_only_after_a_confirmation(stub, open_tab) -> None:
    one = stub.sessions[0].id
    tab = await open_tab(stub.url)
    page = await tab.visit(f"#/sessions/{one}")
    await page.get_by_role("button", name="Erase the session").click()
    assert await tab.check_axe() == []
    await page.get_by_role("button", name="Keep it").click()
    assert stub.deleted == []

    await page.get_by_role("button", name="Erase the text").click()
    await page.get_by_role("button", name="Erase", exact=True).click()
    await expect(page.locator("dialog")).to_be_hidden()
    await page.get_by_role("button", name="Erase the session").click()
    await page.get_by_role("button", name="Erase", exact=True).click()
    await page.wait_for_selector("h1:has-text('Sessions')")
    assert stub.deleted == [(one, "text=only", "1"), (one, "", "1")]


async def test_a_session_is_compacted_at_its_next_request(stub, open_tab) -> None:
    one = stub.sessions[0].id
    tab = await open_tab(stub.url)
    page = await tab.visit(f"#/sessions/{one}")
    await page.get_by_role("button", name="Compact now").click()
    await page.wait_for_selector("text=Its next request is cut.")
    assert stub.compacted == [([one, "compact"], "1")]


async def test_requests_are_filtered_and_older_ones_shown(stub, open_tab) -> None:
    tab = await open_tab(stub.url)
    page = await tab.visit("#/requests")
    await expect(page.locator("tbody tr")).to_have_count(50)
    await page.get_by_role("button", name="Show older requests").click()
    await expect(page.locator("tbody tr")).to_have_count(150)

    await page.get_by_label("Model").select_option("qwen3-coder-30b")
    await expect(page.locator("tbody tr")).to_have_count(12)
    await page.get_by_label("Outcome").select_option("refused")
    await page.wait_for_selector("text=No request of this kind is kept.")


async def test_the_choice_of_a_model_or_client_is_that_of_both_charts(stub, open_tab) -> None:
    """Money without a known price is told as such, and is no zero."""
    for turn in stub.turns:
        if turn["model"] == "qwen3-coder-30b":
            turn.update(cost_usd=None, without_usd=None)
    tab = await open_tab(stub.url)
    page = await tab.visit("#/")
    await page.locator("select[data-key='time period']").select_option("360")
    choice = page.locator("select[data-key='time of']")
    for chosen, key, name in (("models", "model", "claude-sonnet-4-5"), ("clients", "client", "ben")):
        await choice.select_option(f"{chosen} {name}")
        turns = [turn for turn in stub.turns if turn[key] == name]
        cost, saved = (sum(turn[one] for turn in turns) for one in ("cost_usd", "without_usd"))
        saved -= cost
        told = f"Money over time: cost {write_dollars(cost)}, saved {write_dollars(saved)}"
        await expect(page.locator(f"svg[aria-label='{told}']")).to_have_count(1)
        sent = sum(turn["sent_tokens"] for turn in turns)
        await expect(page.locator(f"svg[aria-label$=' {sent:,} sent']")).to_have_count(1)

    await choice.select_option("models qwen3-coder-30b")
    await expect(page.get_by_text("No cost is known in this period.")).to_be_visible()
    await page.get_by_text("The same as a table").click()
    await expect(page.locator("details table tbody tr").first).to_be_visible()
    rows = await page.locator("details table tbody tr").all_inner_texts()
    assert all(row.split("\t")[4:] == ["\u2013", "\u2013"] for row in rows)


async def test_every_cut_is_a_mark_and_a_row(stub, open_tab) -> None:
    one = stub.sessions[0]
    moved = [turn for turn in one.turns if turn["cut_moved"]]
    tab = await open_tab(stub.url)
    page = await tab.visit(f"#/sessions/{one.id}")
    marks, cuts = page.locator("a.mark"), page.locator("section:has(> h2:text-is('Cuts')) tbody tr")
    await expect(marks).to_have_count(len(moved))
    await expect(cuts).to_have_count(len(moved))
    labels = await marks.evaluate_all("(marks) => marks.map((one) => one.getAttribute('aria-label'))")
    rows = await cuts.all_inner_texts()
    assert len(moved) > 3
    for label, row, turn in zip(labels, rows, moved, strict=True):
        assert f"{turn['cut_tokens']:,} tokens were read again, for ${turn['cut_cost_usd']:.4f}" in label
        assert f"${turn['cut_cost_usd']:.4f}" in row
        assert turn["cut_why"] in row
        assert row.split("\t")[5] not in {"", "\u2013"}
    assert [label.partition(": ")[2].partition(";")[0] for label in labels[:4]] == [
        "old tool results pruned",
        "summary by a model",
        "summary by a model",
        "digest, without a model",
    ]
    await page.locator("a.mark").first.focus()
    await page.keyboard.press("Enter")
    await page.wait_for_selector(f"code:text-is('{moved[0]['request_id']}')")


READ_MARKS = """() => [
  [...document.querySelectorAll("a.mark .ring")].map((one) => [one.cx.baseVal.value, one.cy.baseVal.value]),
  [...document.querySelectorAll(".slot")].map((one) => one.x.baseVal.value + one.width.baseVal.value / 2),
  document.querySelector(".window svg").clientWidth,
]"""


async def test_a_mark_stands_above_its_request_in_a_narrow_window(stub, open_tab) -> None:
    """Also if many marks are near each other. None is clipped."""
    one = stub.sessions[0]
    tab = await open_tab(stub.url, viewport={"width": 390, "height": 800})
    page = await tab.visit(f"#/sessions/{one.id}")
    moved = [index for index, turn in enumerate(one.turns) if turn["cut_moved"]]
    await page.wait_for_function("document.querySelector('.window svg').clientWidth < 390")
    places, slots, width = await page.evaluate(READ_MARKS)  # all at once: the picture may be drawn again
    assert [x for x, _ in places] == pytest.approx([slots[index] for index in moved], abs=0.2)
    assert all(6 < x < width - 6 and y >= 6 for x, y in places)


async def test_without_a_cut_shortened_results_are_told(stub, open_tab) -> None:
    """A session in which results were only truncated has lost text; one without any decision has not."""
    one = stub.sessions[0]
    stub.keep_uncut()
    tab = await open_tab(stub.url)
    page = await tab.visit(f"#/sessions/{one.id}")
    told = "No cut has been made, but some of the text is not forwarded. 4 tool results were shortened."
    await expect(page.locator("main")).to_contain_text(told)
    text = await page.inner_text("main")
    assert "nothing was forgotten" not in text
    assert "every message is forwarded" not in text

    for turn in one.turns:
        turn["decisions"] = []
    await page.reload()
    await expect(page.locator("main")).to_contain_text("every message is forwarded")
    await expect(page.locator("main")).to_contain_text("nothing was forgotten so far")


async def test_a_run_of_removed_messages_is_one_row(stub, open_tab) -> None:
    """Until it is opened, or the filter finds one of its messages."""
    removed = CHANGES[1]
    stub.changes = [{**removed, "at": at, "before": f"words {at}."} for at in (*range(2, 86), 90)]
    tab = await open_tab(stub.url)
    page = await tab.visit(fill(stub, "#/requests/{request}"))
    rows = page.locator("details.change")
    await expect(rows).to_have_count(2)
    await expect(rows.first).to_contain_text("Messages 2\u201385: 84 messages removed by summarise, 7,392 tokens")
    await page.get_by_role("searchbox").fill("words 80.")
    await expect(rows).to_have_count(1)
    await expect(rows).to_contain_text("Message 80,")
    await page.get_by_role("searchbox").fill("")
    await rows.first.locator("summary").focus()
    await page.keyboard.press("Enter")
    await expect(rows).to_have_count(86)


async def expect_column(page, name: str, texts: Sequence[object]) -> None:
    """Wait until a column of the table of sessions has these cells."""
    heads = [text.split()[0] for text in await page.locator("thead th").all_inner_texts()]
    cells = page.locator(f"tbody tr > :nth-child({heads.index(name) + 1})")
    await expect(cells).to_have_text([str(text) for text in texts])


async def test_sessions_can_be_searched_filtered_sorted_and_paged(stub, open_tab) -> None:
    """A head sorts, and sorts the other way if it is chosen again. What is chosen stays when a request comes."""
    first = stub.sessions[0]
    stub.sessions += [replace(first, id=f"{number:016x}", client="zoe", requests=1, turns=[]) for number in range(110)]
    tab = await open_tab(stub.url)
    page = await tab.visit("#/sessions")
    caption = page.locator("caption")
    await expect(caption).to_contain_text("114 sessions")
    for number in (2, 3):
        await page.get_by_role("button", name="Next page").click()
        await expect(page.get_by_text(f"Page {number} of 3")).to_be_visible()
    await expect(page.locator("tbody tr")).to_have_count(14)
    await page.locator("select[data-key='filter client']").select_option("ben")
    await expect(caption).to_contain_text("1 session;")
    await expect_column(page, "Session", ["ben 019abc12-58f2-7c33-9d0e-2f1f6d1f0c11"])
    await page.locator("select[data-key='filter client']").select_option("")
    box = page.get_by_role("searchbox")
    await box.press_sequentially("PORTS ana")
    await expect(caption).to_contain_text("1 session;")
    await expect_column(page, "Session", [first.title])
    await box.press_sequentially(" nothing")  # the caret is where it was
    await expect(page.get_by_text("No session is like that.")).to_be_visible()
    await box.fill("")
    await expect(caption).to_contain_text("114 sessions")
    requests = page.get_by_role("button", name="Requests")
    for direction, is_reversed in (("descending", True), ("ascending", False)):
        await requests.click()
        await expect(page.locator(f"th[aria-sort={direction}] button", has_text="Requests")).to_have_count(1)
        numbers = sorted((one.requests for one in stub.sessions), reverse=is_reversed)
        await expect_column(page, "Requests", numbers[:50])


async def test_a_client_whose_key_shows_only_its_sessions_gets_them_instead_of_the_overview(stub, open_tab) -> None:
    """What is closed to a client's key is no error there."""
    stub.closed = {"overview"}
    tab = await open_tab(stub.url, is_polite=False)
    page = await tab.visit("#/")
    await expect(page.locator("h1")).to_have_text("Sessions")
    await expect(page.locator(".error")).to_have_count(0)
