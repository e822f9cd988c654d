"""The invented repository of the demo."""

from proxy.cli.demo.project import list_modules


def test_the_project_is_the_same_every_time() -> None:
    """The demo's figures are those of one session: nothing in it is drawn by chance."""
    assert list_modules() == list_modules()
    assert len({module.name for module in list_modules()}) == len(list_modules())
