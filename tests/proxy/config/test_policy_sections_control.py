"""The keys of a policy that the shell needs, by model and by profile."""

from trimtab.proxy.config.load import load_config


def test_each_key_can_differ_for_a_model_and_a_profile() -> None:
    """What an entry does not set has the value of defaults."""
    text = """
    defaults: {drop_tools: ["mcp__*"], observe_share: 0.5}
    models: [{match: "a*", mode: observe}]
    profiles: {strict: {pairing: refuse, drop_tools: []}}
    """
    config = load_config(text, environment={})
    model, profile = config.policy_for("a1"), config.over_defaults(config.profiles["strict"])

    assert (model.mode, model.observe_share, model.drop_tools) == ("observe", 0.5, ("mcp__*",))
    assert (profile.mode, profile.pairing, profile.drop_tools) == (None, "refuse", ())
