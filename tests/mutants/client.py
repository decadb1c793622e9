"""Mutants of the noun client."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS: list[Mutant] = [
    Mutant(
        "a local stack keeps a listener's certificate of an earlier key",
        "client",
        "berth/local/authority.py",
        "return x509.load_pem_x509_certificate(certificate.read_bytes()).public_key() != held",
        "return False",
        ("tests/berth/authority/test_killed.py",),
    ),
    Mutant(
        "an upgrade of agents ends with the first answer that the API owes",
        "client",
        "berth/cli/rollout/commands.py",
        """            except (Overloaded, Unavailable) as error:
                why = away = _why_not_known(error)
            except BerthError as error:
                why = _why_not_known(error)
""",
        """            except (Overloaded, Unavailable, BerthError):
                raise
""",
        ("tests/cli/test_upgrade_command.py",),
    ),
    Mutant(
        "an upgrade of agents fails a wave that settles while the API is away",
        "client",
        "berth/cli/rollout/commands.py",
        "if found and not (is_away and now < gives_up):",
        "if found:",
        ("tests/cli/test_upgrade_command.py",),
    ),
    Mutant(
        "an old webhook message is accepted",
        "client",
        "berth/client/webhooks.py",
        "if apart > tolerance_seconds:",
        "if False:",
        ("tests/client/test_webhooks.py::test_a_message_too_old_or_from_the_future_is_refused",),
    ),
    Mutant(
        "an unsigned webhook message is accepted",
        "client",
        "berth/client/webhooks.py",
        "if not any(_has_signed(key, signed, given) for key in keys):",
        "if False:",
        ("tests/client/test_webhooks.py::test_any_other_message_is_refused",),
    ),
    Mutant(
        "the signature leaves out the time",
        "client",
        "berth/client/webhooks.py",
        'f"{message_id}.{timestamp}."',
        'f"{message_id}.0."',
        ("tests/client/test_webhooks.py::test_a_signed_message_is_accepted",),
    ),
    Mutant(
        "a forked process draws the same keys",
        "client",
        "berth/client/requests/operation_keys.py",
        "if self._start.process != os.getpid():",
        "if False:",
        ("tests/client/test_operation_keys.py::test_a_restart_and_a_fork_draw_under_another_nonce",),
    ),
    Mutant(
        "a consumer passes over a gap",
        "client",
        "berth/client/consumer.py",
        "if event.prev_version is None or event.prev_version > position:",
        "if event.prev_version is None:",
        ("tests/consumers/test_stories.py::test_a_gap_is_asked_for_again_and_never_skipped",),
    ),
    Mutant(
        "a consumer takes events without a chain",
        "client",
        "berth/client/consumer.py",
        "if event.prev_version is None or event.prev_version > position:",
        "if event.prev_version is not None and event.prev_version > position:",
        ("tests/consumers/test_stories.py::test_events_without_a_chain_are_taken_for_a_gap",),
    ),
    Mutant(
        "a consumer follows a position that went back",
        "client",
        "berth/client/consumer.py",
        "if self.position is not None and position < self.position:",
        "if False:",
        ("tests/consumers/test_stories.py::test_a_position_that_goes_back_is_reported",),
    ),
    Mutant(
        "a consumer takes a stub for its event",
        "client",
        "berth/client/consumer.py",
        "if event.is_stub:",
        "if False:",
        ("tests/consumers/test_stories.py::test_a_stub_stops_it_before_anything_is_lost",),
    ),
    Mutant(
        "rollout: the health of allocations is not read",
        "client",
        "berth/cli/rollout/commands.py",
        "self._client.get_any_allocation(holder).health",
        "self._client.get_allocation(holder).health",
        ("tests/cli/test_upgrade_command.py::test_a_node_with_an_allocation_is_upgraded",),
    ),
]
