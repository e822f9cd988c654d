"""A proxy that records, and what it has recorded."""

from pathlib import Path
from typing import Any

import pytest
from support.client import SMALL, post, settle
from support.sessions import make_session

from trimtab.proxy.account.recordings.folder import read_all
from trimtab.proxy.account.recordings.format import Recording


class Recorder:
    """A proxy that records, and what it has recorded."""

    def __init__(self, start_proxy: Any, client: Any, folder: Path) -> None:
        self._start, self.client, self.folder = start_proxy, client, folder
        self.proxy: Any = None

    async def start(self, *settings: str) -> None:
        self.proxy = await self._start(*SMALL, f"record.dir={self.folder}", *settings)

    async def ask(self, dialect: Any, body: Any, **headers: str) -> Any:
        answer, _ = await post(self.client, self.proxy.url + dialect.path, body, **headers)
        await settle(self.proxy)
        return answer

    async def play(self, dialect: Any, *, stops: Any = (20, 40, 60, 70, 82), session: Any = None) -> None:
        session = session or make_session(40)
        for stop in stops:
            answer = await self.ask(dialect, dialect.write(session["messages"][:stop], session["tools"]))
            assert answer.status == 200

    async def read(self) -> list[Recording]:
        await self.proxy.services.lifecycle.idle.wait()
        await self.proxy.services.recordings.settle()
        broken: list[Any] = []
        found = list(read_all(self.folder, lambda *told: broken.append(told)))
        assert broken == []
        return [one for one in found if one.call is None]


@pytest.fixture
def recorder(start_proxy, client, tmp_path) -> Recorder:
    return Recorder(start_proxy, client, tmp_path / "recordings")
