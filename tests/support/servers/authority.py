"""Certificates and web tokens for tests, made on the spot: a certificate authority and an identity provider."""

import base64
import ipaddress
import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

ISSUER = "https://id.example"
AUDIENCE = "turnwire"


class Pair(NamedTuple):
    """A certificate and its key, in PEM."""

    cert: bytes
    key: bytes

    def write(self, folder: Path, name: str) -> tuple[Path, Path]:
        """Writes NAME.pem and NAME.key, each as a whole."""
        paths = folder / f"{name}.pem", folder / f"{name}.key"
        for path, text in zip(paths, self, strict=True):
            new = path.with_suffix(path.suffix + ".new")
            new.write_bytes(text)
            new.replace(path)
        return paths


class Authority:
    """Issues certificates for 127.0.0.1 and for clients."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        certificate = self._builder(self._name, self._key.public_key()).add_extension(constraints, critical=True)
        self.pem = certificate.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def issue(self, common_name: str, *names: str) -> Pair:
        """Issues a certificate with a common name, for 127.0.0.1 and further host names."""
        return self.issue_for(common_name, *map(x509.DNSName, names), x509.IPAddress(ipaddress.ip_address("127.0.0.1")))

    def issue_for(self, common_name: str, *alternatives: x509.GeneralName) -> Pair:
        """Issues a certificate with a common name and alternative names of any kind."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)] if common_name else []
        certificate = self._builder(x509.Name(subject), key.public_key()).add_extension(
            x509.SubjectAlternativeName(alternatives), critical=False
        )
        return Pair(
            certificate.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM),
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
        )

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=1))
        )


class IdentityProvider:
    """Signs web tokens with one key."""

    def __init__(self, key_id: str = "first") -> None:
        self.key_id = key_id
        self.key = ec.generate_private_key(ec.SECP256R1())

    def claims(self, **more: Any) -> dict[str, Any]:
        """Returns the claims of a right token; a claim that is None is left out."""
        now = time.time()
        claims = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "exp": int(now + 3600),
            "sub": "eve",
            "tenant": "acme",
            "role": "writer",
            **more,
        }
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, *, key_id: str | None = None, **claims: Any) -> str:
        """Returns a signed token."""
        headers = {"kid": key_id or self.key_id}
        return jwt.encode(self.claims(**claims), self.key, algorithm="ES256", headers=headers)

    def public_pem(self) -> bytes:
        """Returns the public key, as an attacker has it."""
        return self.key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )


def jwks(*providers: IdentityProvider) -> str:
    """Returns the set of the public keys."""
    keys = [
        {
            **json.loads(jwt.algorithms.ECAlgorithm.to_jwk(provider.key.public_key())),
            "kid": provider.key_id,
            "use": "sig",
            "alg": "ES256",
        }
        for provider in providers
    ]
    return json.dumps({"keys": keys})


def assembled(header: object, claims: object, signature: bytes = b"") -> str:
    """Returns a token of any parts, signed or not. Bytes are taken as they are."""
    parts = [part if isinstance(part, bytes) else json.dumps(part).encode() for part in (header, claims)]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in (*parts, signature))
