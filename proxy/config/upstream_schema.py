"""The configuration's keys for an upstream: where it is, how it is reached, whose certificates count.

Law: what its files hold is read once, with the configuration; requests that began with one keep its certificates.
"""

import ssl
from collections.abc import Mapping
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, PrivateAttr, ValidationInfo, field_validator, model_validator

from proxy.config.network.certificates import check_key, find_trust_fault, make_context
from proxy.config.network.forward_proxies import Route, find_route, is_loopback
from proxy.config.policies.tools import Section
from proxy.config.values import (
    AuthoritiesFile,
    CertificateFile,
    OptionalKey,
    OptionalName,
    OptionalProxy,
    RootedPath,
    Url,
)


class UpstreamConfig(Section):
    """A server that requests go to."""

    base_url: Url = Field("https://api.openai.com/v1", description="requests to /v1/X go to base_url/X")
    api_key: OptionalKey = Field(None, repr=False, description="the operator's own; null: there is none")
    credential: Literal["auto", "client", "key", "none"] = Field(
        "auto",
        description="whose it is shown: auto (key if api_key is set; else client for upstream, none for upstreams)"
        " | client | key | none",
    )
    allowed_paths: tuple[RootedPath, ...] = Field(
        (), description="beside those under base_url, where api_key goes: /PATH, or /PATH/* and all below it"
    )
    connect_timeout_seconds: float = Field(10.0, gt=0, description="until the connection stands")
    read_timeout_seconds: float = Field(600.0, gt=0, description="between two chunks, not in total")
    proxy: OptionalProxy = Field(
        None,
        repr=False,
        description="http://[USER:PASSWORD@]HOST:PORT | direct | null: HTTPS_PROXY, HTTP_PROXY, NO_PROXY",
    )
    ca_file: AuthoritiesFile = Field(
        None, description="PEM; authorities that are trusted besides the system's (SSL_CERT_FILE)"
    )
    client_cert_file: CertificateFile = Field(None, description="PEM; shown to servers that want a client certificate")
    client_key_file: OptionalName = Field(None, description="PEM; its private key; null: it is in client_cert_file")
    _is_named: bool = PrivateAttr(default=False)
    _route: Route = PrivateAttr(Route())
    _tls: ssl.SSLContext | None = PrivateAttr(None)
    _trust_fault: str | None = PrivateAttr(None)

    @property
    def shown(self) -> Literal["client", "key", "none"]:
        """Whose credential it is shown: each client's own, the operator's `api_key` in its place, or nobody's."""
        if self.credential != "auto":
            return self.credential
        if self.api_key is not None:
            return "key"
        return "none" if self._is_named else "client"

    @property
    def bares_credential(self) -> bool:
        """Whether a credential goes to another machine without TLS, where those between here and there can read it."""
        parts = urlsplit(self.base_url)
        return self.shown != "none" and parts.scheme == "http" and not is_loopback(parts.hostname or "")

    @property
    def route(self) -> Route:
        """The way to it; the environment counts only after `routed_by`."""
        return self._route

    @property
    def tls(self) -> ssl.SSLContext | None:
        """What TLS is spoken with, as its files were when the configuration was read; None is the system's own."""
        return self._tls

    @property
    def trust_fault(self) -> str | None:
        """What is wrong with the environment's file of authorities; None if nothing is, or none is named."""
        return self._trust_fault

    @field_validator("client_key_file")
    @classmethod
    def _check_client_key(cls, key_file: str | None, info: ValidationInfo) -> str | None:
        certificate_file = info.data.get("client_cert_file")
        if certificate_file is not None:
            check_key(certificate_file, key_file)
        elif key_file is not None and "client_cert_file" in info.data:
            message = "needs client_cert_file beside it"
            raise ValueError(message)
        return key_file

    @model_validator(mode="after")
    def _prepare(self) -> Self:
        self._route = find_route(self.base_url, self.proxy, {})
        if self.ca_file is not None or self.client_cert_file is not None:
            self._tls = make_context(self.ca_file, self.client_cert_file, self.client_key_file)
        return self

    def named(self) -> Self:
        """The same as one of `upstreams`."""
        named = self.model_copy()
        named._is_named = True  # noqa: SLF001 - its own
        return named

    def routed_by(self, environment: Mapping[str, str]) -> Self:
        """The same with the environment's proxy, unless `proxy` says otherwise. Raises UnusableProxyError."""
        routed = self.model_copy()
        routed._route = find_route(self.base_url, self.proxy, environment)  # noqa: SLF001 - its own
        routed._trust_fault = find_trust_fault(environment)  # noqa: SLF001 - its own
        return routed


def _name_all(upstreams: dict[str, UpstreamConfig]) -> dict[str, UpstreamConfig]:
    return {name: upstream.named() for name, upstream in upstreams.items()}


NamedUpstreams = Annotated[dict[str, UpstreamConfig], AfterValidator(_name_all)]
"""`upstreams`: what is `auto` for them is another thing than for `upstream`."""
