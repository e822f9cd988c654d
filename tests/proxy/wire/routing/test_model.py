"""Which model a request is for."""

import pytest

from proxy.wire.routing.model import find_deployment, replace_deployment

AZURE = "/openai/deployments/{}/chat/completions?api-version=2024-10-21"


@pytest.mark.parametrize(
    ("target", "deployment"),
    [
        (AZURE.format("gpt-4o"), "gpt-4o"),
        (AZURE.format("my%20model%2Fx"), "my model/x"),
        ("/v1/chat/completions", ""),
        ("/openai/deployments/gpt-4o", ""),
        ("/openai/deployments//chat/completions", ""),
        ("/v1/chat/completions?next=/deployments/x/y", ""),
    ],
)
def test_a_deployment_in_the_path_stands_for_a_model(target: str, deployment: str) -> None:
    """Only a whole segment of the path counts, with its escapes undone."""
    assert find_deployment(target) == deployment


def test_another_deployment_changes_one_segment() -> None:
    """The query stays, and so does a target without a deployment."""
    assert replace_deployment(AZURE.format("a%2Fb"), "small/one") == AZURE.format("small%2Fone")
    assert replace_deployment("/v1/chat/completions?a=1", "small") == "/v1/chat/completions?a=1"
