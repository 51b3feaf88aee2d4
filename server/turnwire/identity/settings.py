"""The settings of JSON web tokens and client certificates; docs/reference/configuration.md describes them."""

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct

from turnwire.domain.bounds import Seconds
from turnwire.domain.principal import TENANT_NAME

RoleName = Literal["reader", "writer", "admin"]
TenantName = Annotated[str, Meta(pattern=rf"^{TENANT_NAME.pattern}\Z")]
"""`domain.principal.TENANT_NAME` as a setting."""
Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
]  # fmt: skip
"""Signatures with public keys only: a shared secret would let this server sign tokens for others."""


class JwtSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Callers with JSON web tokens of an identity provider. A token needs a valid signature by one of the provider's
    keys, the issuer, the audience and a time of expiry (`exp`).
    """

    issuer: Annotated[str, Meta(min_length=1)]
    """The claim `iss` that tokens must have."""
    audience: Annotated[str, Meta(min_length=1)]
    """The claim `aud` that tokens must have or contain: this server's name at the provider."""
    keys: Annotated[str, Meta(min_length=1)]
    """The provider's public keys (JWKS): a file, or an `https://` URL (`http://` on loopback addresses only)."""
    algorithms: tuple[Algorithm, ...] = ("RS256", "PS256", "ES256", "EdDSA")
    """Accepted signature algorithms."""
    clock_skew_seconds: Annotated[float, Meta(ge=0, le=300)] = 30.0
    """Maximum difference between the provider's clock and this one."""
    keys_max_age_seconds: Seconds = 300.0
    """Age at which the keys are read again. For an unknown key they are read at once, at most every 10 seconds."""
    subject_claim: str = "sub"
    """Claim with the subject. Dots lead into objects (`user.name`), unless a claim has that very name."""
    tenant_claim: str = "tenant"
    """Claim with the tenant; a text that is a name of a tenant."""
    default_tenant: TenantName | None = None
    """Tenant of tokens without the claim; if it is left out, such tokens are rejected."""
    role_claim: str = "role"
    """Claim with the role: a text, or a list of texts of which the highest role applies."""
    roles: Mapping[str, RoleName] = {}
    """Roles by value of the claim. Empty: the values are the names of the roles."""
    default_role: RoleName | None = None
    """Role of tokens whose claim names no role; if it is left out, such tokens are rejected."""


class CertificateHolder(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rights of one holder of a client certificate."""

    tenant: TenantName
    """The holder's tenant."""
    role: RoleName
    """The holder's role."""


class MtlsSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Callers with client certificates of `tls.client_ca`. Calls that also have a token are the token's."""

    subject: Literal["common_name", "first_alternative_name"] = "common_name"
    """The source of the subject: the common name (CN) of the certificate, or the first subject alternative name, with
    its kind: `DNS:ci.example`, `email:eve@example`, `URI:spiffe://example/ci`. A certificate whose first name is of
    another kind identifies no caller, and neither does one that has the same text as a name of another kind."""
    holders: Mapping[str, CertificateHolder] = {}
    """Tenant and role by subject, as in `holders."ci.example.com" = { tenant = "acme", role = "writer" }`; with
    `first_alternative_name` a subject is such as `"DNS:ci.example.com"`."""
    default_tenant: TenantName | None = None
    """Tenant of subjects that `holders` does not name; if it is left out, they are rejected."""
    default_role: RoleName | None = None
    """Role of subjects that `holders` does not name; if it is left out, they are rejected."""
