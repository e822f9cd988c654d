"""The page follows the events of the proxy, says so, and disturbs nobody who is using it."""

import copy

import pytest
from playwright.async_api import expect

pytestmark = pytest.mark.asyncio(loop_scope="session")
STATUS = "#live"
MAX_TABS = 80


def add_request(stub) -> dict:
    """One more request of the first session; pages are told."""
    one = stub.sessions[0]
    turn = copy.deepcopy(one.turns[-1])
    turn.update(request_id=f"new{len(one.turns)}", at=turn["at"] + 1, cut_moved=False)
    one.turns.append(turn)
    stub.send("request", turn)
    return turn


async def walk_to(page, selector: str) -> None:
    """Press Tab until an element has the focus."""
    for _ in range(MAX_TABS):
        await page.keyboard.press("Tab")
        if await page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(selector)


@pytest.mark.parametrize("route", ["#/", "#/sessions/{id}"])
async def test_a_new_request_appears_by_itself(stub, open_tab, route) -> None:
    tab = await open_tab(stub.url)
    page = await tab.visit(route.format(id=stub.sessions[0].id))
    await expect(page.locator(STATUS)).to_have_text("Live")

    turn = add_request(stub)

    await expect(page.locator(f"a[href='#/requests/{turn['request_id']}']").first).to_be_attached()


async def test_a_paused_page_does_not_change_until_it_is_resumed(stub, open_tab) -> None:
    tab = await open_tab(stub.url)
    page = await tab.visit("#/requests")
    await expect(page.locator(STATUS)).to_have_text("Live")
    await page.get_by_role("button", name="Pause").click()
    await expect(page.locator(STATUS)).to_have_text("Paused")
    link = page.locator(f"a[href='#/requests/{add_request(stub)['request_id']}']")
    await expect(link).to_have_count(0)

    await page.get_by_role("button", name="Resume").click()
    await expect(link).to_have_count(1)
    await expect(page.locator(STATUS)).to_have_text("Live")


async def test_a_lost_stream_is_told_and_found_again(stub, open_tab) -> None:
    """What happened in between is loaded."""
    tab = await open_tab(stub.url)
    page = await tab.visit("#/requests")
    await expect(page.locator(STATUS)).to_have_text("Live")
    stub.hang_up()
    await expect(page.locator(STATUS)).to_have_text("Not connected, trying again")
    turn = add_request(stub)

    await expect(page.locator(STATUS)).to_have_text("Live")
    await expect(page.locator(f"a[href='#/requests/{turn['request_id']}']")).to_have_count(1)


async def test_an_update_keeps_the_focus_and_what_is_open(stub, open_tab) -> None:
    one = stub.sessions[0]
    tab = await open_tab(stub.url)
    page = await tab.visit(f"#/sessions/{one.id}")
    await page.locator("summary", has_text="as a table").click()
    mark = page.locator("a.mark").nth(1)
    await mark.focus()
    turn = add_request(stub)

    await expect(page.locator(f"td a[href='#/requests/{turn['request_id']}'], th a").last).to_be_visible()
    await expect(page.locator("details[data-key=turns]")).to_have_attribute("open", "")
    await expect(mark).to_be_focused()


async def test_the_keyboard_alone_leads_from_the_overview_to_a_changed_message(stub, open_tab) -> None:
    stub.keep_newest(5)
    newest = stub.turns[0]["request_id"]
    tab = await open_tab(stub.url)
    page = await tab.visit()
    await page.keyboard.press("Tab")
    await expect(page.locator(".skip")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator("main")).to_be_focused()

    await walk_to(page, f"a[href='#/requests/{newest}']")
    await page.keyboard.press("Enter")
    await expect(page.locator("h1")).to_be_focused()
    await expect(page.locator("h1")).to_contain_text(f"Request {newest[:10]}")
    await walk_to(page, "details.change summary")
    await page.keyboard.press("Enter")
    await walk_to(page, "details.change pre")
    assert await page.evaluate("document.activeElement.textContent")

    await page.go_back()
    await expect(page.locator("h1")).to_have_text("Overview")
    await expect(page.locator("h1")).to_be_focused()
