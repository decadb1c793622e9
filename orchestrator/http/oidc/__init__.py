"""OIDC bearer tokens: the issuer's keys, verification, the principal of a token."""
