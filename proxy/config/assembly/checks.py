"""Checks that compare keys of the configuration with each other.

Law: a check is skipped if one of its own keys is wrong by itself; all other checks run.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256

from trimtab.proxy.config.assembly.validation import show
from trimtab.proxy.config.document import Path, Problem, is_within, name_path
from trimtab.proxy.config.network.forward_proxies import is_loopback
from trimtab.proxy.config.policies.policy import PolicyConfig
from trimtab.proxy.config.schema import MIN_MEMORY_BYTES, Config, UpstreamConfig
from trimtab.proxy.config.sections.clients import ClientConfig
from trimtab.proxy.config.values import HASHED, covers, is_hash, split_address

WHOLE = 1.0
"""The share that is the whole room."""


@dataclass(frozen=True, slots=True)
class _Policy:
    path: Path
    own: PolicyConfig
    full: PolicyConfig

    def owner(self, key: str) -> Path:
        """The path of the key that sets the value: the policy's own key, else that of the defaults."""
        return (*(self.path if key in self.own.model_fields_set else ("defaults",)), key)


def find_conflicts(config: Config, wrong: set[Path]) -> list[Problem]:
    """The contradictions between keys. `wrong`: paths with an invalid value, which has been replaced by a stand-in."""
    known = list(config.upstreams) + [str(path[1]) for path in wrong if path[:1] == ("upstreams",) and len(path) == 2]
    found = [*_check_addresses(config, wrong), *_check_clients(config), *_check_workers(config, wrong)]
    found += [*_check_credentials(config, wrong), *_check_text(config, wrong)]
    for policy in _list_policies(config):
        found += _check_waters(policy, wrong)
        if not is_within(("upstreams",), wrong):
            found += _check_upstreams(policy, known, wrong)
        found += _check_order((*policy.path, "tools"), [((glob,), glob) for glob in policy.own.tools], wrong)
    matches = [((index, "match"), entry.match) for index, entry in enumerate(config.models)]
    return [*found, *_check_order(("models",), matches, wrong)]


def _list_policies(config: Config) -> list[_Policy]:
    patches: list[tuple[Path, PolicyConfig]] = [
        (("defaults",), config.defaults),
        *((("models", index), model) for index, model in enumerate(config.models)),
        *((("profiles", name), profile) for name, profile in config.profiles.items()),
    ]
    return [_Policy(path, patch, config.over_defaults(patch)) for path, patch in patches]


def _check_addresses(config: Config, wrong: set[Path]) -> Iterator[Problem]:
    # Port 0 is a different port each time, so two of them do not conflict.
    is_same = config.metrics_listen == config.listen and not config.listen.endswith(":0")
    if is_same and not is_within(("listen",), wrong) and not is_within(("metrics_listen",), wrong):
        yield Problem(("metrics_listen",), "must differ from listen; with null, listen serves both")


def _check_clients(config: Config) -> Iterator[Problem]:
    # Names are not quoted: where keys and names are exchanged, they are keys.
    if not isinstance(config.client_keys, dict):
        return
    keys: frozenset[str] = frozenset(config.clients.keys)
    seen: set[str] = set()
    for name, client in config.client_keys.items():
        own = client.known_keys if isinstance(client, ClientConfig) else {client: ""}
        hashes = [key if is_hash(key) else f"{HASHED}{sha256(key.encode()).hexdigest()}" for key in own]
        if name in keys:
            yield Problem(("client_keys", name), "has a key as its name; write NAME: KEY")
        if not seen.isdisjoint(hashes):
            yield Problem(("client_keys", name), "has the same key as another client; each needs a key of its own")
        seen.update(hashes)


def _check_workers(config: Config, wrong: set[Path]) -> Iterator[Problem]:
    workers, memory = ("workers",), ("limits", "max_memory_bytes")
    # `auto` starts only as many workers as fit the memory.
    if config.workers == "auto" or is_within(workers, wrong) or is_within(memory, wrong):
        return
    needed_bytes = config.workers * MIN_MEMORY_BYTES
    if needed_bytes > config.limits.max_memory_bytes:
        yield Problem(workers, f"{config.workers} workers need limits.max_memory_bytes of at least {needed_bytes}")


def _check_credentials(config: Config, wrong: set[Path]) -> Iterator[Problem]:
    upstreams: dict[Path, UpstreamConfig] = {("upstream",): config.upstream}
    upstreams |= {("upstreams", name): upstream for name, upstream in config.upstreams.items()}
    for path, upstream in upstreams.items():
        at = (*path, "credential")
        if is_within(at, wrong) or is_within((*path, "api_key"), wrong):
            continue
        if upstream.credential == "key" and upstream.api_key is None:
            yield Problem(at, "key needs api_key too")
        elif upstream.credential in {"client", "none"} and upstream.api_key is not None:
            words = "is never sent then; remove one of the two"
            yield Problem(at, f"{upstream.credential} contradicts api_key, which {words}")


def _check_text(config: Config, wrong: set[Path]) -> Iterator[Problem]:
    """Text of conversations must not be shown to other clients, nor to other machines without a token."""
    keys = [("admin_token",), ("listen",), ("metrics_listen",), ("client_keys",)]
    keeps_text = config.dashboard.enabled and config.dashboard.keep_text
    if not keeps_text or config.admin_token is not None or any(is_within(key, wrong) for key in keys):
        return
    at = ("dashboard", "keep_text")
    addresses = filter(None, (config.listen, config.metrics_listen))
    if config.client_keys is not None:
        yield Problem(at, "needs admin_token: else every client with a key could read the text of the others")
    elif not all(is_loopback(split_address(address)[0]) for address in addresses):
        yield Problem(at, "needs admin_token: else other machines could read the text of conversations")


def _check_waters(policy: _Policy, wrong: set[Path]) -> Iterator[Problem]:
    low, high = policy.owner("low_water"), policy.owner("high_water")
    # An error of the defaults is reported there only, not again for each policy that inherits it.
    is_own = policy.path in {low[:-1], high[:-1]}
    if not is_own or is_within(low, wrong) or is_within(high, wrong):
        return
    high_share, low_share = policy.full.high_water, policy.full.low_water
    if low_share == "auto":
        return
    if high_share == "auto":  # it is above every low water except the whole room
        if low_share == WHOLE:
            yield Problem(low, f"{low_share} must be below {WHOLE}, the whole room, because a cut would remove nothing")
    elif low_share < high_share:
        return
    elif "low_water" in policy.own.model_fields_set:
        yield Problem(low, f"{low_share} must be below high_water, {high_share}")
    else:
        yield Problem((*policy.path, "high_water"), f"{high_share} must be above low_water, {low_share}")


def _check_upstreams(policy: _Policy, known: Sequence[str], wrong: set[Path]) -> Iterator[Problem]:
    own = {(*policy.path, "upstream"): policy.own.upstream}
    own[*policy.path, "summary", "upstream"] = policy.own.summary.upstream
    for path, name in own.items():
        if name is not None and name not in known and not is_within(path, wrong):
            words = f"is not one of upstreams ({', '.join(known) or 'none'})"
            yield Problem(path, f"{show(path, name)}{words}")


def _check_order(path: Path, globs: Sequence[tuple[Path, str]], wrong: set[Path]) -> Iterator[Problem]:
    # The first glob that matches wins. So a glob never takes effect if an earlier one matches all that it matches.
    earlier: list[str] = []
    for place, glob in globs:
        if is_within((*path, *place), wrong):
            continue
        first = next((other for other in earlier if covers(other, glob)), None)
        if first is not None:
            yield Problem((*path, *place), f"never matches: {name_path((first,))} above it matches first")
        earlier.append(glob)
