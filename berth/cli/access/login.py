"""`berth login` and `berth logout`: tokens of an OIDC issuer instead of an API key."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from berth.cli.access.logins import Login, drop_login, locked_logins, read_login, store_login
from berth.cli.endings import UNREACHABLE, USAGE, Refused
from berth.cli.session import Session

if TYPE_CHECKING:
    import httpx

    from berth.cli.access.issuer import DeviceCode

RENEW_SECONDS: Final = 30.0
"""A token is renewed when it is valid for less than this."""


def login(
    session: Session,
    issuer: Annotated[str | None, typer.Option(help="exact `iss` of the issuer [env: BERTH_LOGIN_ISSUER]")] = None,
    client_id: Annotated[
        str | None, typer.Option(help="this command's client at the issuer [env: BERTH_LOGIN_CLIENT_ID]")
    ] = None,
    scope: Annotated[str | None, typer.Option(help="scopes [env: BERTH_LOGIN_SCOPE]")] = None,
    audience: Annotated[
        str | None, typer.Option(help="the API's audience, for issuers that ask for it [env: BERTH_LOGIN_AUDIENCE]")
    ] = None,
) -> None:
    """Log in with a browser on any device; later commands use and renew the token.

    With BERTH_INVITATION_TOKEN it accepts that invitation first.
    """
    from berth.cli.access import issuer as issuers
    from berth.cli.access.members import TOKEN_VARIABLE
    from berth.client import Client

    address, settings = session.address(), session.settings
    named = issuer or settings.login_issuer
    client = client_id or settings.login_client_id
    if named is None or client is None:
        raise Refused(
            "name --issuer and --client-id, or set BERTH_LOGIN_ISSUER and BERTH_LOGIN_CLIENT_ID",
            code="usage",
            exit_code=USAGE,
        )
    issuers.require_issuer(named, "--issuer")
    with _http() as http:
        endpoints = issuers.discover(http, named)
        code = issuers.begin(
            http, endpoints, client, scope or settings.login_scope, audience or settings.login_audience
        )
        _show(session, code)
        tokens = issuers.poll(http, endpoints, client, code)
    # The API accepts the token, or nothing is stored.
    with Client(address, tokens.access_token, retry_seconds=3.0, insecure_http=session.insecure_http) as berth:
        if invitation := os.environ.get(TOKEN_VARIABLE):
            berth.accept_invitation(token=invitation)
        account = berth.me()
    made = Login(
        named,
        client,
        endpoints.token,
        endpoints.revocation,
        tokens.access_token,
        tokens.refresh_token,
        tokens.expires_at,
    )
    with locked_logins():
        store_login(address, made)
    if session.json:
        session.console.print_json(
            data={"api_url": address, "principal_id": str(account.principal_id), "role": account.role}
        )
    else:
        session.console.print(f"logged in to {address} with the role {account.role}", markup=False, soft_wrap=True)


def logout(session: Session) -> None:
    """Remove the stored token, and have the issuer revoke it where it can."""
    from berth.cli.access import issuer as issuers

    address = session.address()
    with locked_logins():
        found = read_login(address)
        drop_login(address)
    revoked = False
    if found is not None and found.refresh_token is not None and found.revocation_endpoint is not None:
        with _http() as http:
            revoked = issuers.revoke(http, found.revocation_endpoint, found.client_id, found.refresh_token)
    if session.json:
        session.console.print_json(data={"api_url": address, "logged_out": found is not None, "revoked": revoked})
        return
    if found is None:
        session.console.print(f"there is no login for {address}", markup=False, soft_wrap=True)
        return
    rest = "" if revoked else "; the issuer did not revoke it, so it ends by itself"
    session.console.print(f"logged out of {address}{rest}", markup=False, soft_wrap=True)


def live_token(address: str) -> str:
    """The access token for an API address, renewed if it ends soon. Raises `Refused` if it is over and cannot be renewed."""
    found = _stored(address)
    if found.expires_at - RENEW_SECONDS > time.time():
        return found.access_token
    with locked_logins():
        found = _stored(address)
        if found.expires_at - RENEW_SECONDS > time.time():
            return found.access_token  # another process has renewed it
        return _renewed(address, found)


def _renewed(address: str, found: Login) -> str:
    """Renew a login; the caller holds the lock."""
    from berth.cli.access import issuer as issuers

    is_valid = found.expires_at > time.time()
    if found.refresh_token is None:
        if is_valid:
            return found.access_token
        raise _over(address)
    asked = {"grant_type": "refresh_token", "refresh_token": found.refresh_token, "client_id": found.client_id}
    try:
        with _http() as http:
            tokens = issuers.request_tokens(
                http, issuers.require_issuer(found.token_endpoint, "the token endpoint"), asked
            )
    except issuers.TokenDenied as denied:
        if denied.error in ("invalid_grant", "invalid_client", "unauthorized_client"):
            drop_login(address)
            raise _over(address) from None
        raise
    except Refused as failed:
        if failed.exit_code == UNREACHABLE and is_valid:
            return found.access_token
        raise
    renewed = Login(
        found.issuer, found.client_id, found.token_endpoint, found.revocation_endpoint, tokens.access_token,
        tokens.refresh_token or found.refresh_token, tokens.expires_at,
    )  # fmt: skip
    store_login(address, renewed)
    return renewed.access_token


def _stored(address: str) -> Login:
    found = read_login(address)
    if found is None:
        raise _over(address)
    return found


def _over(address: str) -> Refused:
    return Refused(f"the login for {address} is over; run `berth login`", code="login_expired")


def _show(session: Session, code: DeviceCode) -> None:
    """Print what the user opens and enters; beside the output of programs."""
    screen = session.errors if session.json else session.console
    screen.print(
        f"open {code.verification_uri} on any device and enter the code {code.user_code}", markup=False, soft_wrap=True
    )
    if code.verification_uri_complete is not None:
        screen.print(f"or open {code.verification_uri_complete}", markup=False, soft_wrap=True)


def _http() -> httpx.Client:
    import httpx

    return httpx.Client(follow_redirects=False)
