"""A tab of a real browser that takes note of all that a page must not do."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import axe_playwright_python
from playwright.async_api import BrowserContext, Page

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text("utf-8")
WATCH = """addEventListener("securitypolicyviolation", (event) =>
  console.error(`CSP: ${event.violatedDirective} ${event.blockedURI}`));"""
READ_NAMED = """() => Object.fromEntries([...document.querySelectorAll("data[data-name]")]
  .map((one) => [one.dataset.name, one.value === "" ? null : Number(one.value)]))"""
RUN_AXE = """async (options) => (await axe.run(document, options)).violations
  .flatMap((one) => one.nodes.map((node) => `${one.id}: ${node.html}`))"""
"""Only what is wrong is handed over: Playwright would take a second of processor time to check all that axe tells."""
RULES = {
    "resultTypes": ["violations"],
    "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
}


@dataclass
class Tab:
    """One tab.

    complaints: errors on the console, exceptions, and breaches of the content security policy.
    origins: of all requests.
    """

    page: Page
    root: str
    complaints: list[str] = field(default_factory=list)
    origins: set[str] = field(default_factory=set)

    @classmethod
    async def open(cls, context: BrowserContext, root: str) -> "Tab":
        """Open a tab at the dashboard's address, without a page as yet."""
        await context.add_init_script(WATCH)
        tab = cls(await context.new_page(), root)
        tab.page.on("console", tab._hear)
        tab.page.on("pageerror", lambda error: tab.complaints.append(str(error)))
        tab.page.on("request", lambda request: tab.origins.add(_origin(request.url)))
        return tab

    def _hear(self, message: Any) -> None:
        if message.type in {"error", "warning"}:
            self.complaints.append(message.text)

    async def visit(self, route: str = "#/", *, wait: str = "main h1 ~ *:not(.empty)") -> Page:
        """Show a route, and wait until it is there."""
        await self.page.goto(f"{self.root}{route}")
        await self.page.wait_for_selector(wait)
        return self.page

    async def read_named(self) -> dict[str, float | None]:
        """The numbers of the page that have a name."""
        return await self.page.evaluate(READ_NAMED)

    async def check_axe(self) -> list[str]:
        """What axe-core finds."""
        await self.page.evaluate(AXE)
        return await self.page.evaluate(RUN_AXE, RULES)

    async def leave(self) -> None:
        """Close the tab before its server stops, which it would complain about."""
        self.check_manners()
        await self.page.close()

    def check_manners(self) -> None:
        """Nothing was complained about, and no request has left the origin."""
        assert self.complaints == []
        assert self.origins <= {_origin(self.root)}


def write_dollars(amount: float) -> str:
    """As the page writes an amount."""
    sign = "\u2212" if amount < 0 else ""
    return f"{sign}${abs(amount):.{2 if abs(amount) >= 1 else 4}f}"


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}" if parts.scheme != "data" else _DATA


_DATA = "data:"
