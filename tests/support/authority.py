"""Certificates for one test: a certificate authority, and certificates signed by it or by themselves."""

import ipaddress
import ssl
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = timedelta(days=1)


def _make_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def write_key(file: Path, key: ec.EllipticCurvePrivateKey, password: bytes | None = None) -> None:
    """Write a private key as PEM, encrypted if a password is given."""
    how = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption_algorithm=how)
    )


@dataclass
class Authority:
    """A certificate authority. Its certificate is in `ca_file`; certificates that it issues are in `directory`."""

    directory: Path
    name: str = "An authority"
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    issued: int = 0

    def __post_init__(self) -> None:
        certificate = self._sign(self.name, self.key, is_authority=True)
        self.ca_file = self.directory / f"{self.name.replace(' ', '-')}.pem"
        self.ca_file.write_bytes(certificate)

    def issue(self, *names: str, since: int = -1, until: int = 1, self_signed: bool = False) -> tuple[Path, Path]:
        """Issue a certificate for host names and IP addresses. Returns its file and the file of its key.

        since, until: the days of its validity, counted from now.
        """
        self.issued += 1
        key = ec.generate_private_key(ec.SECP256R1())
        file = self.directory / f"{self.name.replace(' ', '-')}-{self.issued}.crt"
        file.write_bytes(self._sign(names[0], key, names=names, days=(since, until), self_signed=self_signed))
        write_key(file.with_suffix(".key"), key)
        return file, file.with_suffix(".key")

    def serve(self, *names: str, since: int = -1, until: int = 1, self_signed: bool = False) -> ssl.SSLContext:
        """A TLS context for a server with these names."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.issue(*names, since=since, until=until, self_signed=self_signed))
        return context

    def _sign(
        self,
        name: str,
        key: ec.EllipticCurvePrivateKey,
        *,
        names: tuple[str, ...] = (),
        days: tuple[int, int] = (-1, 1),
        is_authority: bool = False,
        self_signed: bool = False,
    ) -> bytes:
        now = datetime.now(UTC)
        signer = key if self_signed else self.key
        builder = (
            x509.CertificateBuilder()
            .subject_name(_make_name(name))
            .issuer_name(_make_name(name if self_signed else self.name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + days[0] * _DAY - _DAY)
            .not_valid_after(now + days[1] * _DAY)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(map(_alternative, names)), critical=False)
        if is_authority:
            builder = builder.add_extension(_SIGNS_CERTIFICATES, critical=True)
        return builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


_SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)
