"""One headless Chromium for all tests here, and tabs of it. Everything runs in one event loop."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from shutil import which

import pytest
import pytest_asyncio
from browser.browsing import Tab
from browser.examples import make_sessions
from browser.stub import Stub, run_stub
from playwright.async_api import Browser, async_playwright, expect

OpenTab = Callable[..., Awaitable[Tab]]
PATIENCE_MILLISECONDS = 30_000
expect.set_options(timeout=PATIENCE_MILLISECONDS)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """Debian's Chromium."""
    path = which("chromium")
    if path is None:
        pytest.skip("chromium is not installed; tests/run installs it, or: apt-get install chromium")
    async with async_playwright() as playwright:
        running = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield running
        await running.close()


@pytest_asyncio.fixture(loop_scope="session")
async def open_tab(browser: Browser) -> AsyncIterator[OpenTab]:
    """A function that opens a tab for the page at an address. In the end no tab may have misbehaved."""
    async with AsyncExitStack() as stack:
        tabs = []

        async def start(url: str, *, is_polite: bool = True, **options: object) -> Tab:
            context = await stack.enter_async_context(await browser.new_context(**options))
            context.set_default_timeout(PATIENCE_MILLISECONDS)
            tab = await Tab.open(context, url)
            if is_polite:
                tabs.append(tab)
            return tab

        yield start
        for tab in tabs:
            tab.check_manners()


@pytest_asyncio.fixture(loop_scope="session")
async def stub() -> AsyncIterator[Stub]:
    """The stub server with made-up sessions."""
    now = time.time()
    async with run_stub(Stub(now, make_sessions(now))) as running:
        yield running
