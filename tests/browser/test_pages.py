"""Every page of the dashboard, in a real browser, with the content security policy that trimtab sends."""

import pytest
from browser.examples import HOSTILE
from browser.stub import PAGE
from playwright.async_api import expect

pytestmark = pytest.mark.asyncio(loop_scope="session")

MAX_BYTES = 150_000
ROUTES = ["#/", "#/sessions", "#/sessions/{session}", "#/requests", "#/requests/{request}"]


def fill(stub, route: str) -> str:
    """The route with the names of a session and of its newest request."""
    one = stub.sessions[0]
    return route.format(session=one.id, request=one.turns[-1]["request_id"])


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("route", ROUTES)
async def test_axe_finds_nothing(stub, open_tab, route, scheme) -> None:
    """Also with all details open. Few requests, because axe-core looks at each cell of a table."""
    stub.keep_newest(12)
    stub.notes = [{"kind": "text", "text": "The text of messages is kept in memory."}]
    tab = await open_tab(stub.url, color_scheme=scheme)
    page = await tab.visit(fill(stub, route))
    await page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")

    assert await tab.check_axe() == []


@pytest.mark.parametrize("route", ROUTES)
async def test_a_narrow_window_scrolls_only_downwards(stub, open_tab, route) -> None:
    stub.keep_newest(12)
    tab = await open_tab(stub.url, viewport={"width": 360, "height": 740})
    page = await tab.visit(fill(stub, route))

    assert await page.evaluate("document.documentElement.scrollWidth") <= 360
    assert await tab.check_axe() == []


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
    tab = await open_tab(stub.url)
    for route in ROUTES:
        page = await tab.visit(fill(stub, route))
        assert HOSTILE in await page.inner_text("main")
        assert await page.locator("main img, main script").count() == 0
        assert await page.title() != "owned"


async def test_nothing_is_shown_yet_without_a_request(stub, open_tab) -> None:
    stub.sessions = []
    tab = await open_tab(stub.url)
    for route in ("#/", "#/sessions", "#/requests"):
        page = await tab.visit(route, wait="div.empty")
        text = await page.inner_text("main")
        assert "No request yet: point OPENAI_BASE_URL at trimtab and send one." in text
        assert f"export OPENAI_BASE_URL={stub.url.removesuffix('trimtab/')}v1" in text
        assert await tab.check_axe() == []


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
    assert told in await page.inner_text("[role=alert]")
    assert await tab.check_axe() == []

    stub.refuses = 0
    await page.get_by_role("button", name=button).click()
    await page.wait_for_selector(".figures")
    assert await page.locator(".error").count() == 0


@pytest.mark.parametrize("route", ["#/requests/none", "#/sessions/none", "#/nowhere"])
async def test_what_is_not_there_is_said(stub, open_tab, route) -> None:
    tab = await open_tab(stub.url, is_polite=False)
    page = await tab.visit(route, wait="main .empty a")
    assert await tab.check_axe() == []
    await page.locator("main .empty a").click()
    await page.wait_for_selector("table >> visible=true")


async def test_without_kept_text_the_page_says_how_to_keep_it(stub, open_tab) -> None:
    stub.keeps_text = False
    tab = await open_tab(stub.url)
    page = await tab.visit(fill(stub, "#/requests/{request}"))
    assert "dashboard.keep_text: true" in await page.inner_text("main")
    assert await page.locator("details.change").count() == 0


async def test_a_changed_message_is_shown_before_and_after(stub, open_tab) -> None:
    tab = await open_tab(stub.url)
    page = await tab.visit(fill(stub, "#/requests/{request}"))
    change = page.locator("details.change", has_text="result of read_file")
    await change.locator("summary").click()
    text = await change.inner_text()
    assert "\u2212     step_1()" in text
    assert "10 unchanged lines" in text
    assert "+ [trimtab: omitted lines 3-41" in text

    await change.get_by_role("button", name="As the client sent it").click()
    assert "step_39()" in await change.locator("pre").inner_text()
    await change.get_by_role("button", name="As the model sees it").click()
    assert "step_39()" not in await change.locator("pre").inner_text()


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


async def test_requests_are_filtered_and_older_ones_shown(stub, open_tab) -> None:
    tab = await open_tab(stub.url)
    page = await tab.visit("#/requests")
    assert await page.locator("tbody tr").count() == 50
    await page.get_by_role("button", name="Show older requests").click()
    await expect(page.locator("tbody tr")).to_have_count(150)

    await page.get_by_label("Model").select_option("qwen3-coder-30b")
    await expect(page.locator("tbody tr")).to_have_count(12)
    await page.get_by_label("Outcome").select_option("refused")
    await page.wait_for_selector("text=No request of this kind is kept.")


async def test_every_cut_is_a_mark_and_a_row(stub, open_tab) -> None:
    one = stub.sessions[0]
    moved = [turn for turn in one.turns if turn["cut_moved"]]
    tab = await open_tab(stub.url)
    page = await tab.visit(f"#/sessions/{one.id}")
    labels = [await mark.get_attribute("aria-label") for mark in await page.locator("a.mark").all()]
    rows = await page.locator("section:has(> h2:text-is('Cuts')) tbody tr").all_inner_texts()

    assert len(labels) == len(rows) == len(moved) > 3
    for label, row, turn in zip(labels, rows, moved, strict=True):
        assert f"{turn['cut_tokens']:,} tokens were read again, for ${turn['cut_cost_usd']:.4f}" in label
        assert f"${turn['cut_cost_usd']:.4f}" in row
    assert [label.partition(": ")[2].partition(";")[0] for label in labels[:4]] == [
        "old tool results pruned",
        "summary by a model",
        "summary by a model",
        "digest, without a model",
    ]
    await page.locator("a.mark").first.focus()
    await page.keyboard.press("Enter")
    await page.wait_for_selector(f"code:text-is('{moved[0]['request_id']}')")
