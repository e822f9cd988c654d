"""The event of a request: what it shows of the session and its window."""

from support.client import SMALL, post
from support.sessions import make_session


async def test_requests_of_one_session_have_its_name_and_those_of_another_do_not(client, start_proxy):
    """The session is found by the tenant, the model, and the transcript up to its first user message."""
    proxy = await start_proxy(*SMALL)
    session = make_session(40)["messages"]
    bodies = [session[:20], session, [{"role": "user", "content": "another"}]]
    for messages in bodies:
        await post(client, f"{proxy.url}/v1/chat/completions", {"model": "m", "messages": messages})
    await post(
        client, f"{proxy.url}/v1/chat/completions", {"model": "m", "messages": session}, authorization="Bearer k"
    )
    await proxy.services.lifecycle.idle.wait()

    first, second, other, other_tenant = proxy.services.history.events
    assert first.session == second.session
    assert len({first.session, other.session, other_tenant.session, ""}) == 4
    assert (first.messages, second.messages) == (20, len(session))


async def test_one_system_prompt_is_no_session(client, start_proxy):
    """Tasks tell sessions apart. A system prompt with the time of day does not."""
    proxy = await start_proxy()
    for system, task in (
        ("You are an agent.", "Fix it."),
        ("You are an agent.", "Write it."),
        ("It is noon.", "Fix it."),
    ):
        messages = [{"role": "system", "content": system}, {"role": "user", "content": task}]
        await post(client, f"{proxy.url}/v1/chat/completions", {"model": "m", "messages": messages})
    await post(client, f"{proxy.url}/v1/chat/completions", {"model": "other", "messages": messages})
    await post(client, f"{proxy.url}/v1/chat/completions", {"model": "m", "messages": messages[:1]})
    await proxy.services.lifecycle.idle.wait()

    fix, write, at_noon, other_model, only_system = (event.session for event in proxy.services.history.events)
    assert fix == at_noon
    assert len({fix, write, other_model, only_system, ""}) == 5


async def test_the_window_has_the_waters_and_the_cuts(client, start_proxy):
    """The waters lie between the head and the limit, and each cut is of a known kind."""
    proxy = await start_proxy(*SMALL)
    await post(client, f"{proxy.url}/v1/chat/completions", {"model": "m", **make_session(40)})
    await proxy.services.lifecycle.idle.wait()

    (event,) = proxy.services.history.events
    window = event.window
    assert 0 < window.low_tokens < window.high_tokens <= event.limit_tokens
    assert window.prune_stop or window.cuts
    assert {cut.kind for cut in window.cuts} <= {"summarise", "digest"}
    assert all(0 < cut.at <= cut.made_at <= event.messages for cut in window.cuts)
