"""Takes the pictures of the page in docs/guides/dashboard.md, with made-up sessions.

Usage, from the root: PYTHONPATH=tests .venv/bin/python -m browser.take_pictures [FOLDER]
"""

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

from browser.examples import make_sessions
from browser.stub import Stub, run_stub
from playwright.async_api import async_playwright

ASSETS = Path(__file__).parents[2] / "docs/assets"
NOON = 1_795_521_600.0
"""2026-11-24, 12:00 UTC: the end of all sessions."""
WIDTH = 1000


async def take(folder: Path) -> None:
    """Write one picture of the overview, one of the sessions, one of a session, one of a request."""
    sessions = make_sessions(NOON)
    tasks = ("Explain the failing build", "Add a cache to the resolver", "", "Review the last change of the schema")
    for number, title in enumerate(tasks):
        like = sessions[number]
        at = NOON - 7200 * (number + 1)
        one = replace(like, id=f"{number:016x}", title=title, header="", requests=9 + 31 * number, end=at, turns=[])
        sessions.append(one)
    async with run_stub(Stub(NOON, sessions)) as stub, async_playwright() as playwright:
        one = stub.sessions[0]
        browser = await playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        views = {
            "overview": ("#/", 1060),
            "sessions": ("#/sessions", 470),
            "session": (f"#/sessions/{one.id}", 800),
            "request": (f"#/requests/{one.turns[-1]['request_id']}", 720),
        }
        for name, (route, height) in views.items():
            context = await browser.new_context(
                color_scheme="light",
                viewport={"width": WIDTH, "height": height},
                timezone_id="UTC",
                reduced_motion="reduce",
            )
            page = await context.new_page()
            await page.clock.set_fixed_time(NOON * 1000)
            await page.goto(stub.url + route)
            await page.wait_for_selector("main section, main table")
            await page.wait_for_selector("#live:text-is('Live')")
            if name == "request":
                await page.locator("details.change summary", has_text="read_file").click()
                await page.locator("section", has=page.locator("h2:text-is('Decisions')")).evaluate(
                    "(one) => scrollTo(0, one.getBoundingClientRect().top + scrollY - 16)"
                )
            await page.screenshot(path=folder / f"dashboard-{name}.png")
            await context.close()
        await browser.close()


if __name__ == "__main__":
    asyncio.run(take(Path(sys.argv[1]) if len(sys.argv) > 1 else ASSETS))
