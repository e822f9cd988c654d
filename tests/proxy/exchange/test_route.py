"""Where a request goes, and which settings apply to it."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from multidict import CIMultiDict
from support.builders import IMAGE, assistant, conversation, result, system, user
from support.journeys import MakeStages, arrive, read_session

from trimtab.proxy.config.load import load_config
from trimtab.proxy.config.policy import MODES
from trimtab.proxy.config.schema import Config
from trimtab.proxy.exchange.answer import is_counted, is_text_only
from trimtab.proxy.exchange.arrival import MAX_UPSTREAMS
from trimtab.proxy.exchange.compact import settle
from trimtab.proxy.exchange.route import EDGE_BYTES, Route, choose_route, find_credentials_for
from trimtab.proxy.http.errors import UnknownModeError, UnknownProfileError
from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.proxy.wire.codec import Codec
from trimtab.proxy.wire.dialects import read_request
from trimtab.proxy.wire.messages.codec import MESSAGES
from trimtab.rules.conversation import Message
from trimtab.rules.window.prune import drop_images

PROFILES = "profiles: {tiny: {max_tool_result_tokens: 100}, other: {}}"


def load(text: str) -> Config:
    """A configuration."""
    return load_config(text, environment={})


def choose(config: Config, *headers: tuple[str, str], model: str = "m") -> Route:
    """The route of a request with these headers."""
    return choose_route(config, arrive(), CIMultiDict(headers), model, CHAT)


BODY = b'{"model":"claude-sonnet-4-5","max_tokens":9,%b"messages":[{"role":"user","content":"hi"}]%b}'
BETA = b'"anthropic_beta":["context-1m-2025-08-07"]'


def ask(config: Config, body: bytes = BODY % (b"", b""), dialect: Codec = MESSAGES, **headers: str) -> int | str:
    """The window of a request with this body and these headers."""
    config_headers = {name.replace("_", "-"): value for name, value in headers.items()}
    arrival = structs.replace(arrive(**config_headers), endpoint=dialect.name)
    request = dialect.read(body)
    route, again = (choose_route(config, arrival, CIMultiDict(), request.model, dialect, request) for _ in range(2))
    assert route.settings is again.settings
    return route.settings.context_window


def test_the_window_that_a_request_asks_for_is_part_of_its_policy() -> None:
    config = load("mode: enforce")
    assert ask(config) == "auto"
    assert ask(config, anthropic_beta="a, context-1m-2025-08-07") == 1_000_000
    assert ask(config, BODY % (BETA + b",", b"")) == ask(config, BODY % (b"", b"," + BETA)) == 1_000_000
    long = BODY.replace(b"hi", b"hi" * EDGE_BYTES)
    assert [ask(config, long % edges) for edges in ((BETA + b",", b""), (b"", b"," + BETA))] == [1_000_000] * 2
    assert ask(config, long % (BETA + b",", b"") + b" " * 2 * EDGE_BYTES) == 1_000_000
    assert ask(config, b" " * EDGE_BYTES + long % (BETA + b",", b"")) == "auto"  # not looked for in between
    assert ask(config, BODY.replace(b"4-5", b"4-5[1m]") % (b"", b"")) == 1_000_000
    assert (
        ask(config, BODY.replace(b'"hi"', rb'"\"anthropic_beta\":[\"context-1m-2025-08-07\"]"') % (b"", b"")) == "auto"
    )
    assert ask(load("defaults: {context_window: 50000}"), anthropic_beta="context-1m-2025-08-07") == 50_000


def test_the_operator_may_name_windows_by_header_and_endpoint() -> None:
    """The first that matches; else `context_window` holds."""
    config = load(
        """defaults: {context_window: 50000, context_windows: [
        {header: X-Tier, value: "gold*", endpoint: messages, tokens: 400000},
        {header: x-tier, tokens: 300000}, {endpoint: chat, tokens: 20000}]}"""
    )
    assert ask(config) == 50_000
    assert ask(config, x_tier="gold-1") == 400_000
    assert ask(config, x_tier="iron") == 300_000
    assert ask(config, BODY % (b"", b""), CHAT) == 20_000
    assert ask(config, BODY % (b"", b""), CHAT, x_tier="gold") == 300_000


def test_a_header_makes_the_proxy_do_less_never_more() -> None:
    for configured, wanted in product(MODES, MODES):
        config = load(f"mode: '{configured}'")
        weaker = min(configured, wanted, key=MODES.index)
        for written in (wanted, f" {wanted.capitalize()}\t"):
            assert choose(config, ("x-trimtab-mode", written)).target.mode == weaker
        assert choose(config).target.mode == configured


@given(
    configured=st.sampled_from(MODES),
    wanted=st.text(max_size=9).filter(lambda text: text.strip().lower() not in MODES),
)
def test_an_unknown_mode_is_refused(configured: str, wanted: str) -> None:
    """The law holds even if the proxy does nothing anyway: a client that means to switch it off must notice a typo."""
    with pytest.raises(UnknownModeError, match="x-trimtab-mode must be off, observe or enforce"):
        choose(load(f"mode: '{configured}'"), ("x-trimtab-mode", wanted))


def test_all_values_of_a_header_count() -> None:
    """A value that contradicts another or is unknown is refused in any position. A repeated value counts once."""
    config = load(PROFILES)
    for header, values, error in (
        ("x-trimtab-mode", ("off", "bogus"), UnknownModeError),
        ("x-trimtab-mode", ("off", "enforce"), UnknownModeError),
        ("x-trimtab-mode", ("observe", ""), UnknownModeError),
        ("x-trimtab-mode", ("off", " OFF"), None),
        ("x-trimtab-profile", ("tiny", "other"), UnknownProfileError),
        ("x-trimtab-profile", ("tiny", "tiny"), None),
    ):
        for ordered in (values, values[::-1]):
            headers = [(header, value) for value in ordered]
            if error is None:
                assert choose(config, *headers) == choose(config, headers[0])
                continue
            with pytest.raises(error) as raised:
                choose(config, *headers)
            assert raised.value.param == header


def test_a_profile_is_for_the_model_that_its_entry_describes() -> None:
    config = load("""
upstreams: {here: {base_url: "http://here/v1"}}
models:
  - match: m*
    upstream: here
    context_window: 32000
    context_windows: [{endpoint: chat, tokens: 64000}]
    count: heuristic
    prices: {input: 2}
    economy: frugal
profiles: {early: {high_water: 0.5}, small: {context_window: 16000, count: o200k_base}}
""")
    early, small, other = (choose(config, ("x-trimtab-profile", name)).settings for name in ("early", "small", "early"))
    model = choose(config).settings
    for key in ("upstream", "context_window", "count", "prices"):
        assert getattr(early, key) == getattr(model, key)
    assert (early.high_water, early.economy) == (0.5, "balanced")
    assert (small.context_window, small.count, small.upstream) == (16000, "o200k_base", "here")
    assert early is other
    assert choose(config, ("x-trimtab-profile", "early"), model="x").settings.context_window == "auto"


def test_an_unknown_profile_is_refused_with_the_known_ones() -> None:
    """The message does not repeat the client's value, which may be anything."""
    for profiles, known in ((PROFILES, "known: tiny, other"), ("{}", "known: there are none")):
        with pytest.raises(UnknownProfileError) as raised:
            choose(load(profiles), ("x-trimtab-profile", "nope"))
        assert str(raised.value).endswith(known)
        assert "nope" not in str(raised.value)


def test_headers_are_ignored_if_the_configuration_says_so() -> None:
    config = load(PROFILES + "\nallow_header_override: false")
    headers = (("x-trimtab-mode", "off"), ("x-trimtab-profile", "tiny"))

    assert choose(config, *headers) == choose(config) == choose(config, ("x-trimtab-mode", "bogus"))


def test_a_request_goes_to_the_upstream_of_its_model() -> None:
    config = load(
        "{upstream: {base_url: 'http://main:8000/v1'}, upstreams: {here: {base_url: 'http://here/v1'}},"
        " models: [{match: 'local*', upstream: here}], profiles: {there: {upstream: here}}}"
    )
    main, local, profile = (
        choose(config),
        choose(config, model="local-1"),
        choose(config, ("x-trimtab-profile", "there")),
    )

    assert (main.target.upstream, main.target.match, main.upstream) == ("main:8000", None, config.upstream)
    assert (local.target.upstream, local.target.match, local.upstream) == ("here", "local*", config.upstreams["here"])
    assert (profile.target.upstream, profile.target.match, profile.upstream) == ("here", None, local.upstream)


def test_a_credential_in_a_models_name_is_not_shown() -> None:
    """If a client confuses the two fields, its key must not be logged."""
    told = choose(load(""), model="org/sk-of-the-client").target
    plain = choose(load(""), model="org/model").target

    assert (told.model, told.shown_model, told.is_secret) == ("org/sk-of-the-client", "org/***", True)
    assert (plain.shown_model, plain.is_secret) == ("org/model", False)


def test_a_prompt_is_text_only_if_it_holds_no_media() -> None:
    """An image that was removed counts no more."""
    for messages, expected in (
        ((system(), user(), assistant("Yes."), result("a")), True),
        ((user(), user("See:", IMAGE)), False),
        ((user(), drop_images(user("See:", IMAGE))), True),
        ((user(), drop_images(user("See:", IMAGE, IMAGE), 1)), False),
    ):
        assert is_text_only(conversation(*messages)) is expected


def test_only_a_prompt_that_is_counted_exactly_calibrates() -> None:
    """Some servers drop reasoning, and some read members that are not counted."""
    request = read_request(b'{"model":"m","messages":[]}')
    for more, expected in (({}, True), ({"has_reasoning": True}, False), ({"has_uncounted": True}, False)):
        message = Message(assistant().role, ("so",), **more)
        assert is_counted(request, conversation(user(), message)) is expected


def test_the_clients_credential_is_shown_to_upstreams_that_are_to_have_it() -> None:
    """Only headers that admit the client or name the account are sent. A named upstream must ask for them."""
    headers = [
        ("Authorization", "Bearer a"),
        ("X-Api-Key", "b"),
        ("OpenAI-Project", "p"),
        ("Cookie", "c"),
        ("X-A", "d"),
    ]
    others = "keyed: {base_url: 'http://k', api_key: k}, plain: {base_url: 'http://p'}"
    config = load(f"{{upstreams: {{{others}, told: {{base_url: 'http://t', credential: client}}}}}}")

    for upstream in (config.upstream, config.upstreams["told"]):
        assert find_credentials_for(upstream, headers) == headers[:4]
    for name in ("keyed", "plain"):
        assert find_credentials_for(config.upstreams[name], headers) == ()


def test_the_mode_of_a_model_wins_over_the_defaults_and_those_over_the_top() -> None:
    """The neighbour's entry has no effect. A header lowers whichever applies."""
    for top, defaults, model in product(MODES, [None, *MODES], [None, *MODES]):
        other = "off" if (model or defaults or top) != "off" else "enforce"
        models = [{"match": "a", **({"mode": model} if model else {})}, {"match": "b", "mode": other}]
        above = {"mode": defaults} if defaults else {}
        config = Config.model_validate({"mode": top, "defaults": above, "models": models})

        modes = [choose(config, model=name).target.mode for name in "abc"]
        assert modes == [model or defaults or top, other, defaults or top]
        assert choose(config, ("x-trimtab-mode", "off"), model="a").target.mode == "off"


CONTROLS = st.fixed_dictionaries(
    {}, optional={"mode": st.sampled_from(MODES), "observe_share": st.sampled_from([0.0, 0.3, 0.9, 1.0])}
)


@given(top=st.sampled_from(MODES), defaults=CONTROLS, entry=CONTROLS, profile=CONTROLS)
def test_a_profile_never_lifts_what_the_models_entry_sets(
    top: str, defaults: dict[str, object], entry: dict[str, object], profile: dict[str, object]
) -> None:
    config = Config.model_validate(
        {"mode": top, "defaults": defaults, "models": [{"match": "m", **entry}], "profiles": {"p": profile}}
    )
    plain, chosen = choose(config), choose(config, ("x-trimtab-profile", "p"))

    if not profile:
        assert (chosen.target.mode, chosen.observe_share) == (plain.target.mode, plain.observe_share)
    if "mode" in entry:
        assert MODES.index(chosen.target.mode) <= MODES.index(str(entry["mode"]))
    if "observe_share" in entry:
        assert chosen.observe_share >= plain.observe_share
    if entry.keys() == set() and "mode" in profile and chosen.observe_share < 1:
        assert chosen.target.mode == profile["mode"]


@pytest.mark.parametrize(
    ("settings", "continues", "mode"),
    [
        (("defaults.observe_share=1",), False, "observe"),
        (("defaults.observe_share=1", "mode=off"), False, "off"),
        (("defaults.observe_share=0",), True, "enforce"),
        (("defaults.observe_share=0.000001",), True, "observe"),
        (("defaults.observe_share=0.000001",), False, "enforce"),
        (("defaults.observe_share=0.999999",), False, "observe"),
        (("defaults.observe_share=0.999999", "mode=off"), True, "off"),
    ],
)
async def test_a_share_of_sessions_is_observed(make_stages: MakeStages, settings, continues: bool, mode: str) -> None:  # noqa: FBT001
    """A session whose beginning the upstream holds is, if any is: nobody knows its place."""
    stages = await make_stages(*settings)
    request = read_session(3)
    call = await stages.prepare(request)
    whole = call.compactor.plan(request, call.view.policy).original
    settled = settle(call, replace(whole, continues=continues), "a name")

    assert settled.route.target.mode == mode
    assert settled == structs.replace(call, route=settled.route, session="a name")
    assert (settled.route is call.route) is (mode == call.route.target.mode)


def test_a_route_is_chosen_once_for_each_model_of_a_head_and_configuration() -> None:
    arrival, config, headers = arrive(), load(f"mode: observe\n{PROFILES}"), CIMultiDict[str]()
    route = choose_route(config, arrival, headers, "m", CHAT)
    assert choose_route(config, arrival, headers, "m", CHAT) is route
    assert choose_route(config, arrival, headers, "other", CHAT).target.model == "other"
    reloaded = load("mode: enforce")
    again = choose_route(reloaded, arrival, headers, "m", CHAT)
    assert (route.target.mode, again.target.mode) == ("observe", "enforce")
    assert choose_route(reloaded, arrival, headers, "m", CHAT) is again
    kept = [choose_route(reloaded, arrival, headers, f"m{number}", CHAT) for number in range(9)]
    assert choose_route(reloaded, arrival, headers, "m8", CHAT) is not kept[-1]
    assert len(arrival.head.routes) == MAX_UPSTREAMS
