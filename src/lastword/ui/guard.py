"""Who may do what: the first thing that a request meets.

- On loopback, reading is open; but only under a name of this machine, so that no other site can
  have its own name point here and read. Bound to anything else, everything needs the password.
- No other site's page may ask for anything, be it a picture: some answers cost a scan of all keys. It
  may only link to a page.
- Every change needs the token in a header of its own. A browser sends such a header to another site
  only if that site agrees, and this one never does: so no other page can act for a visitor.
- No page may load anything from elsewhere, be framed, or run a script that is not a file of ours.
"""

from __future__ import annotations

import base64
import ipaddress
import os
import re
import secrets
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN_HEADER = "x-lastword-token"
HEADERS = {  # of every answer
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
_READING = ("GET", "HEAD", "OPTIONS")
_MOST_BODY = 1 << 16  # bytes


@dataclass(frozen=True)
class Access:
    """How this page may be used."""

    host: str = "127.0.0.1"
    password: str | None = None
    read_only: bool = False
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)

    def is_token(self, given: str) -> bool:
        """Whether that is the token, and changes are allowed at all."""
        is_same = secrets.compare_digest(given.encode(), self.token.encode())
        return is_same and not self.read_only


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach that address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Guard:
    """The middleware."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        if scope["method"] == "HEAD":  # the server leaves the body out
            scope = {**scope, "method": "GET"}
        refused = self._refused(scope["method"], scope["path"], Headers(scope=scope))
        await (refused or self._app)(scope, receive, send_guarded)

    def _refused(self, method: str, path: str, headers: Headers) -> Response | None:
        """The answer to a request that may not pass; None if it may."""
        access = self._access
        if access.password is not None:
            if not _is_password(headers.get("authorization", ""), access.password):
                refused = _refusal(401, "the password is needed; any user name will do")
                refused.headers["www-authenticate"] = 'Basic realm="lastword", charset="UTF-8"'
                return refused
        elif not is_loopback(_hostname(headers.get("host", ""))):
            return _refusal(421, "ask for it as localhost or 127.0.0.1")
        if _is_of_another_site(path, headers):
            return _refusal(403, "another site's page asked for this")
        return None if method in _READING else self._refused_change(path, headers)

    def _refused_change(self, path: str, headers: Headers) -> Response | None:
        size = headers.get("content-length", "0")
        is_number = re.fullmatch("[0-9]{1,9}", size) is not None
        if "transfer-encoding" in headers or not is_number or int(size) > _MOST_BODY:
            return _refusal(413, f"send a content-length of {_MOST_BODY} bytes at the most")
        if path.startswith("/api/scene"):  # which is the visitor's own; but no other site's
            is_ours = headers.get("content-type", "").startswith("application/json")
            return None if is_ours else _refusal(415, "send application/json")
        if self._access.read_only:
            return _refusal(403, "this page is read-only; start it without --read-only")
        if not self._access.is_token(headers.get(TOKEN_HEADER, "")):
            sentence = f"changes need the token that was printed at start, in {TOKEN_HEADER}"
            return _refusal(401, sentence)
        return None


def _refusal(status: int, sentence: str) -> Response:
    return JSONResponse({"error": "AccessError", "message": sentence}, status)


def _is_of_another_site(path: str, headers: Headers) -> bool:
    """Whether a browser says that another site's page is behind it; a link to a page is let through."""
    if headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
        return False
    is_link = headers.get("sec-fetch-mode") == "navigate"
    is_page = headers.get("sec-fetch-dest") == "document" and not path.startswith("/api")
    return not (is_link and is_page)


def _hostname(header: str) -> str:
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def _is_password(authorization: str, password: str) -> bool:
    kind, _, encoded = authorization.partition(" ")
    if kind.lower() != "basic":
        return False
    try:
        _, _, given = base64.b64decode(encoded).partition(b":")
    except ValueError:
        return False
    return secrets.compare_digest(given, os.fsencode(password))
