"""One certificate authority and one serving certificate for all servers here.

The names are those that the certificate rotators of training-operator and Kueue expect: they keep
existing certificates only if the names are among these, the keys are in the traditional format and
nothing expires within 90 days. Otherwise they create their own, which the API server does not know.
"""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LOOPBACK = "127.0.0.1"
AUTHORITIES = ("training-operator-ca", "kueue-ca")
SERVERS = ("training-operator.kubeflow.svc", "kueue-webhook-service.kueue-system.svc")
VALID = datetime.timedelta(days=365)


def make_certificates() -> dict[str, bytes]:
    """Writes files with the names that operators look for: ca.crt, ca.key, tls.crt, tls.key."""
    ca_key, key = new_key(), new_key()
    ca = _authority(ca_key)
    certificate = _serving(key, ca, ca_key)
    return {
        "ca.crt": ca.public_bytes(serialization.Encoding.PEM),
        "ca.key": key_file(ca_key),
        "tls.crt": certificate.public_bytes(serialization.Encoding.PEM),
        "tls.key": key_file(key),
    }


def new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def key_file(key: rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def write_certificates(files: dict[str, bytes], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        file = folder / name
        file.touch(mode=0o600)
        file.write_bytes(content)


def _authority(key: rsa.RSAPrivateKey) -> x509.Certificate:
    builder = _builder(AUTHORITIES[0], key)
    names = x509.SubjectAlternativeName([x509.DNSName(name) for name in AUTHORITIES])
    builder = builder.add_extension(names, critical=False)
    builder = builder.add_extension(x509.BasicConstraints(True, None), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    return builder.sign(key, hashes.SHA256())


def _serving(
    key: rsa.RSAPrivateKey, ca: x509.Certificate, ca_key: rsa.RSAPrivateKey
) -> x509.Certificate:
    builder = _builder(SERVERS[0], key)
    names = x509.SubjectAlternativeName(
        [
            *(x509.DNSName(name) for name in (*SERVERS, "localhost")),
            x509.IPAddress(ipaddress.ip_address(LOOPBACK)),
        ]
    )
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    purpose = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    builder = builder.add_extension(names, critical=False)
    builder = builder.add_extension(x509.BasicConstraints(False, None), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
    builder = builder.add_extension(purpose, critical=False)
    builder = builder.add_extension(issuer, critical=False)
    return builder.sign(ca_key, hashes.SHA256())


def _builder(name: str, key: rsa.RSAPrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name(AUTHORITIES[0]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + VALID)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_encipherment=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
