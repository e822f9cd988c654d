"""The configuration's keys for an upstream: its URL, credential, proxy, timeouts and certificates.

Law: certificate files are read once, with the configuration. A request keeps the certificates that it began with.
"""

import ssl
from collections.abc import Mapping
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, PrivateAttr, ValidationInfo, field_validator, model_validator

from trimtab.proxy.config.network.certificates import check_key, find_trust_fault, make_context
from trimtab.proxy.config.network.forward_proxies import Route, find_route, is_loopback
from trimtab.proxy.config.network.urls import OPENAI_HOST, Provider, find_provider, list_passwords, read_host
from trimtab.proxy.config.policies.sections import AutoPrices, Section
from trimtab.proxy.config.values import (
    AuthoritiesFile,
    CertificateFile,
    OptionalKey,
    OptionalName,
    OptionalProxy,
    RootedPath,
    Url,
)
from trimtab.proxy.config.words import Wanted

CacheSeconds = Annotated[
    Literal["auto"] | Annotated[float, Field(ge=0)], Wanted("auto, or a number of seconds, 0 or more")
]


class UpstreamConfig(Section):
    """A server that requests go to."""

    base_url: Url = "https://api.openai.com/v1"
    api_key: OptionalKey = Field(None, repr=False)
    credential: Literal["auto", "client", "key", "none"] = "auto"
    allowed_paths: tuple[RootedPath, ...] = ()
    strip_nonces: Literal["auto", "off"] = "auto"
    prices: AutoPrices | None = None
    cache: Literal["auto", "off"] = "auto"
    cache_seconds: CacheSeconds = "auto"
    connect_timeout_seconds: float = Field(10.0, gt=0)
    read_timeout_seconds: float = Field(600.0, gt=0)
    proxy: OptionalProxy = Field(None, repr=False)
    ca_file: AuthoritiesFile = None
    client_cert_file: CertificateFile = None
    client_key_file: OptionalName = None
    _is_named: bool = PrivateAttr(default=False)
    _route: Route = PrivateAttr(Route())
    _passwords: tuple[str, ...] = PrivateAttr(())
    _tls: ssl.SSLContext | None = PrivateAttr(None)
    _trust_fault: str | None = PrivateAttr(None)

    @property
    def shown(self) -> Literal["client", "key", "none"]:
        """The credential that the upstream gets: the client's own, the operator's `api_key`, or none."""
        if self.credential != "auto":
            return self.credential
        if self.api_key is not None:
            return "key"
        return "none" if self._is_named else "client"

    @property
    def provider(self) -> Provider | None:
        """Whose hosts the server is one of, if that decides what it is sent; None for any other."""
        return find_provider(self.base_url)

    @property
    def needs_clients_key(self) -> bool:
        """Whether the server is known to list its models only to a key, and only clients have one."""
        is_known = self.provider == "anthropic" or read_host(self.base_url) == OPENAI_HOST
        return is_known and self.shown == "client"

    @property
    def strips_nonces(self) -> bool:
        """Whether what only makes each request different is removed for this server."""
        return self.strip_nonces == "auto" and self.provider != "anthropic"

    @property
    def bares_credential(self) -> bool:
        """Whether a credential goes to another machine without TLS, so that the network can read it."""
        parts = urlsplit(self.base_url)
        return self.shown != "none" and parts.scheme == "http" and not is_loopback(parts.hostname or "")

    @property
    def route(self) -> Route:
        """The proxy or direct way to the upstream; the environment counts only after `routed_by`."""
        return self._route

    @property
    def passwords(self) -> tuple[str, ...]:
        """The credentials in the environment's variables for proxies and traces; empty before `routed_by`."""
        return self._passwords

    @property
    def tls(self) -> ssl.SSLContext | None:
        """The TLS settings, from the files as they were at the reading of the configuration; None: the system's own."""
        return self._tls

    @property
    def trust_fault(self) -> str | None:
        """What is wrong with the file of SSL_CERT_FILE; None if nothing is, or the variable is not set."""
        return self._trust_fault

    @field_validator("client_key_file")
    @classmethod
    def _check_client_key(cls, key_file: str | None, info: ValidationInfo) -> str | None:
        certificate_file = info.data.get("client_cert_file")
        if certificate_file is not None:
            check_key(certificate_file, key_file)
        elif key_file is not None and "client_cert_file" in info.data:
            message = "needs client_cert_file too"
            raise ValueError(message)
        return key_file

    @model_validator(mode="after")
    def _prepare(self) -> Self:
        self._route = find_route(self.base_url, self.proxy, {})
        if self.ca_file is not None or self.client_cert_file is not None:
            self._tls = make_context(self.ca_file, self.client_cert_file, self.client_key_file)
        return self

    def named(self) -> Self:
        """The upstream as one of `upstreams`, for which `credential: auto` has another meaning."""
        named = self.model_copy()
        named._is_named = True  # noqa: SLF001 - of this class
        return named

    def routed_by(self, environment: Mapping[str, str]) -> Self:
        """The upstream with the environment's proxy, unless `proxy` is set. Raises UnusableProxyError."""
        routed = self.model_copy()
        routed._route = find_route(self.base_url, self.proxy, environment)  # noqa: SLF001 - of this class
        routed._passwords = list_passwords(environment)  # noqa: SLF001 - of this class
        proxy = routed._route.proxy  # noqa: SLF001 - of this class
        if "https" in {urlsplit(url).scheme for url in (self.base_url, proxy.url if proxy else "")}:
            routed._trust_fault = find_trust_fault(environment)  # noqa: SLF001 - of this class
        return routed


def _name_all(upstreams: dict[str, UpstreamConfig]) -> dict[str, UpstreamConfig]:
    return {name: upstream.named() for name, upstream in upstreams.items()}


NamedUpstreams = Annotated[dict[str, UpstreamConfig], AfterValidator(_name_all)]
"""The type of `upstreams`."""
