"""The refusal to return a stored answer with a secret to another caller."""

from __future__ import annotations

from orchestrator.problems import Outcome, Problem


class SecretNotShownAgain(Problem):
    """A replay under another token than the first: the write was done, and `answer` is what it made, save the secret.

    `unknown`, because not_done would be untrue: a client that still needs a secret creates a new one under a new key.
    """

    status, code, title = 409, "secret_not_shown_again", "Secret not shown again"
    outcome = Outcome.UNKNOWN
