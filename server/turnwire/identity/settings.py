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
    """Callers with [JSON web tokens](../operate/security.md#callers) of an identity provider."""

    issuer: Annotated[str, Meta(min_length=1)]
    """The claim `iss` that tokens must have."""
    audience: Annotated[str, Meta(min_length=1)]
    """The claim `aud` that tokens must have or contain."""
    keys: Annotated[str, Meta(min_length=1)]
    """The provider's public keys (JWKS): a file, or an `https://` URL (`http://` on loopback only)."""
    algorithms: tuple[Algorithm, ...] = ("RS256", "PS256", "ES256", "EdDSA")
    """Accepted signature algorithms."""
    clock_skew_seconds: Annotated[float, Meta(ge=0, le=300)] = 30.0
    """Tolerance for the provider's clock."""
    keys_max_age_seconds: Seconds = 300.0
    """Age at which keys are read again; for an unknown key at once, at most every 10 seconds."""
    subject_claim: str = "sub"
    """Claim with the subject. Dots lead into objects, unless a claim has that very name."""
    tenant_claim: str = "tenant"
    """Claim with the tenant."""
    default_tenant: TenantName | None = None
    """Tenant of tokens without the claim; without it they are rejected."""
    role_claim: str = "role"
    """Claim with the role, or a list of which the highest counts."""
    roles: Mapping[str, RoleName] = {}
    """Roles by value of the claim. Empty: the values are roles."""
    default_role: RoleName | None = None
    """Role of tokens whose claim names none; without it they are rejected."""


class CertificateHolder(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rights of one holder of a client certificate."""

    tenant: TenantName
    """The holder's tenant."""
    role: RoleName
    """The holder's role."""


class MtlsSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Callers with client certificates of `tls.client_ca`. Calls that also have a token are the token's."""

    subject: Literal["common_name", "first_alternative_name"] = "common_name"
    """Source of the subject: the common name (CN), or the first subject alternative name with its kind
    (`DNS:ci.example`, `email:eve@example`, `URI:spiffe://example/ci`); a certificate whose first name is of another
    kind, or that has the same text as a name of another kind, identifies no caller."""
    holders: Mapping[str, CertificateHolder] = {}
    """Tenant and role by subject: `holders."DNS:ci.example" = { tenant = "acme", role = "writer" }`."""
    default_tenant: TenantName | None = None
    """Tenant of other subjects; without it they are rejected."""
    default_role: RoleName | None = None
    """Role of other subjects; without it they are rejected."""
