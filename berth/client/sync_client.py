"""The synchronous client."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent import futures
from types import TracebackType
from typing import TYPE_CHECKING, ParamSpec, Self, TypeVar
from uuid import UUID

import httpx

from berth.client.calls import (
    administration,
    allocations,
    api_keys,
    approvals,
    balances,
    catalogue,
    keyvalue,
    log,
    maintenance,
    operations,
    orphans,
    reservations,
    retention,
    subscriptions,
    tenants,
    usage,
    webhooks,
)
from berth.client.calls.call import Call
from berth.client.errors import BerthError
from berth.client.feed.events import Event
from berth.client.feed.following import follow
from berth.client.feed.listening import Listening
from berth.client.feed.subscription import Subscription
from berth.client.hardware.sync_methods import HardwareMethods
from berth.client.models import Allocation, Page
from berth.client.requests.conversation import Done, Heard, Join, Pause, Talk, converse, draw_key, step_after
from berth.client.requests.credentials import KeySource, require_sendable
from berth.client.requests.exchange import RETENTION_SECONDS, RETRY_SECONDS, Exchange
from berth.client.requests.sync_methods import each, now
from berth.client.requests.waiting import Waiting
from berth.client.reservation_models import Reservation

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Client(HardwareMethods):
    """Every path of the API as a method. Safe to use from several threads; close it, or use it as a context manager.

    Methods raise `BerthError` and its named subclasses. Connection errors, 503 and `operation_in_progress` are retried
    for up to `retry_seconds` with the same idempotency key; where the outcome of a write is open even then, its key is asked
    for, and `OutcomeUnknown` raised only if that does not settle it. `key` is an API key, an OIDC token, or a function that
    returns one and is called before every attempt. `client_id` begins the idempotency keys (default: one kept in the
    user's state directory); a key older than `retention_seconds`, the deployment's own, is asked for and not sent again.
    """

    def __init__(
        self,
        address: str,
        key: KeySource | None = None,
        *,
        retry_seconds: float = RETRY_SECONDS,
        retention_seconds: float = RETENTION_SECONDS,
        client_id: str | None = None,
        insecure_http: bool = False,
    ) -> None:
        self.exchange = Exchange(
            address, key, retry_seconds=retry_seconds, retention_seconds=retention_seconds, client_id=client_id,
            insecure_http=insecure_http,
        )  # fmt: skip
        self._http = httpx.Client(**self.exchange.settings())

    def __enter__(self) -> Self:
        """Nothing connects until the first request."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def run(self, call: Call[Result]) -> Result:
        """Send one call with the retries described for the class; return its validated result."""
        return self._carry_out(converse(self.exchange, call))

    def new_idempotency_key(self) -> str:
        """A key for one write to come, so that a program can store it first; a call takes it as `idempotency_key`."""
        return self._carry_out(draw_key(self.exchange))

    def _carry_out(self, talk: Talk[Result]) -> Result:
        step = step_after(talk, None)
        while not isinstance(step, Done):
            heard: Heard = None
            try:
                if isinstance(step, Pause):
                    time.sleep(step.seconds)
                elif isinstance(step, Join):
                    futures.wait([step.question], timeout=step.seconds_max)
                else:
                    heard = self._http.request(**step.arguments)
            except (httpx.RequestError, BerthError) as error:
                heard = error
            except BaseException as interruption:
                talk.throw(interruption)  # Comes out again, with the key of a write as a note.
                raise
            step = step_after(talk, heard)
        return step.result

    def iterate(self, call: Call[Page[Result]]) -> Iterator[Result]:
        """Every item of a list, asking for one page after the other."""
        while True:
            page = self.run(call)
            yield from page.items
            if page.next_cursor is None:
                return
            call = call.after(page.next_cursor)

    def events(
        self,
        after: int | None = None,
        *,
        types: Sequence[str] = (),
        subjects: Sequence[str] = (),
        until: int | None = None,
    ) -> Iterator[Event]:
        """Events of the log behind the version `after`, as they come; default: what comes from now on. It ends
        when every event up to the version `until` was yielded; default: never.

        It reconnects automatically, with exponential backoff and without limit. `types` (`provisioning.active`, or a
        family, `provisioning.*`) and `subjects` (`allocations/<id>`, `allocations/*`) choose; without them `prev_version`
        proves that none was missed. Raises `LogTruncated` where events behind `after` are gone, `LogGap` where one is
        missing, and what any read raises.
        """
        if after is None:
            after = self.run(log.get_log_version()).version
        for several in self.event_lists(after, types=types, subjects=subjects, until=until):
            yield from several

    def event_lists(
        self, after: int, *, types: Sequence[str] = (), subjects: Sequence[str] = (), until: int | None = None
    ) -> Iterator[list[Event]]:
        """As `events`, in the lists in which they arrive."""
        return follow(self._http, Subscription(after, types, subjects, until))

    def notifications(
        self,
        subscription: str | None = None,
        *,
        after: int | None = None,
        types: Sequence[str] = (),
        subjects: Sequence[str] = (),
    ) -> Iterator[Event]:
        """Events as they commit, on a WebSocket; needs the library `websockets`. Default: what comes from now on.

        With a `subscription` the server keeps its place, and `after` is where it begins if it is new. An event is
        acknowledged when the next is requested, so an unfinished event is delivered again, here or elsewhere. It
        reconnects and filters as `events` does, and raises what it raises, and `QuotaExceeded`.
        """
        from berth.client.feed.notifying import listen

        return listen(self.exchange.address, self._credential, Listening(subscription, after, types, subjects))

    def attach_console(self, allocation_id: UUID) -> ClientConnection:
        """An open socket to the serial console of an active allocation; needs the library `websockets`.

        Raises `NotFound`, `InvalidState`, `ConsoleBusy`, `ConsoleNotSetUp`, `ConsoleUnsupported`, `ConsoleUnavailable`,
        `TooManyConsoles`.
        """
        from berth.client.consoles.attaching import attach

        return attach(self.exchange.address, self._credential(), allocation_id)

    def _credential(self) -> dict[str, str]:
        key = self.exchange.key
        asked = key() if callable(key) else key
        return {"Authorization": f"Bearer {require_sendable(str(asked))}"} if asked else {}

    def wait_for(
        self,
        allocation_id: UUID,
        states: Collection[str],
        timeout_seconds: float,
        *,
        tenant_id: UUID | None = None,
        progress: Callable[[Allocation], None] | None = None,
    ) -> Allocation:
        """Poll until the allocation is in one of `states` without a verb in progress; `progress` sees every answer.

        Raises `StateUnreachable` when it ended otherwise, `WaitTimeout` after `timeout_seconds`.
        """
        waiting = Waiting(states, timeout_seconds)
        while True:
            found = self.get_allocation(allocation_id, tenant_id=tenant_id)
            if progress is not None:
                progress(found)
            pause = waiting.pause_seconds(found)
            if pause is None:
                return found
            time.sleep(pause)

    def wait_for_reservation(
        self,
        reservation_id: UUID,
        states: Collection[str],
        timeout_seconds: float,
        *,
        tenant_id: UUID | None = None,
        progress: Callable[[Reservation], None] | None = None,
    ) -> Reservation:
        """Poll until the reservation is in one of `states`; `progress` sees every answer on the way.

        Raises `StateUnreachable` when it ended otherwise, `WaitTimeout` after `timeout_seconds`.
        """
        waiting = Waiting(states, timeout_seconds)
        while True:
            found = self.get_reservation(reservation_id, tenant_id=tenant_id)
            if progress is not None:
                progress(found)
            pause = waiting.pause_seconds(found)
            if pause is None:
                return found
            time.sleep(pause)

    create_allocation = now(allocations.create_allocation)
    list_allocations = now(allocations.list_allocations)
    iterate_allocations = each(allocations.list_allocations)
    get_allocation = now(allocations.get_allocation)
    get_timeline = now(allocations.get_timeline)
    get_wipe_certificate = now(allocations.get_wipe_certificate)
    iterate_timeline = each(allocations.get_timeline)
    update_allocation = now(allocations.update_allocation)
    reboot_allocation = now(allocations.reboot_allocation)
    stop_allocation = now(allocations.stop_allocation)
    start_allocation = now(allocations.start_allocation)
    rebuild_allocation = now(allocations.rebuild_allocation)
    rescue_allocation = now(allocations.rescue_allocation)
    release_allocation = now(allocations.release_allocation)
    me = now(tenants.me)
    list_skus = now(catalogue.list_skus)
    iterate_skus = each(catalogue.list_skus)
    list_regions = now(catalogue.list_regions)
    iterate_regions = each(catalogue.list_regions)
    list_images = now(catalogue.list_images)
    iterate_images = each(catalogue.list_images)
    create_invitation = now(tenants.create_invitation)
    list_invitations = now(tenants.list_invitations)
    iterate_invitations = each(tenants.list_invitations)
    revoke_invitation = now(tenants.revoke_invitation)
    accept_invitation = now(tenants.accept_invitation)
    list_members = now(tenants.list_members)
    iterate_members = each(tenants.list_members)
    set_member_role = now(tenants.set_member_role)
    remove_member = now(tenants.remove_member)
    add_ssh_key = now(tenants.add_ssh_key)
    list_ssh_keys = now(tenants.list_ssh_keys)
    iterate_ssh_keys = each(tenants.list_ssh_keys)
    get_ssh_key = now(tenants.get_ssh_key)
    remove_ssh_key = now(tenants.remove_ssh_key)

    create_reservation = now(reservations.create_reservation)
    list_reservations = now(reservations.list_reservations)
    iterate_reservations = each(reservations.list_reservations)
    get_reservation = now(reservations.get_reservation)
    confirm_reservation = now(reservations.confirm_reservation)
    cancel_reservation = now(reservations.cancel_reservation)
    list_resources = now(reservations.list_resources)
    iterate_resources = each(reservations.list_resources)
    get_resource = now(reservations.get_resource)
    create_resource = now(reservations.create_resource)
    take_resource_out_of_service = now(reservations.take_resource_out_of_service)
    put_resource_in_service = now(reservations.put_resource_in_service)
    get_availability = now(reservations.list_availability)
    iterate_availability = each(reservations.list_availability)
    list_usage = now(usage.list_usage)
    iterate_usage = each(usage.list_usage)
    get_balance = now(balances.get_balance)
    create_webhook = now(webhooks.create_webhook)
    list_webhooks = now(webhooks.list_webhooks)
    iterate_webhooks = each(webhooks.list_webhooks)
    get_webhook = now(webhooks.get_webhook)
    change_webhook = now(webhooks.change_webhook)
    delete_webhook = now(webhooks.delete_webhook)
    rotate_webhook = now(webhooks.rotate_webhook)
    send_test_message = now(webhooks.send_test_message)
    list_deliveries = now(webhooks.list_deliveries)
    iterate_deliveries = each(webhooks.list_deliveries)
    get_delivery = now(webhooks.get_delivery)
    replay_delivery = now(webhooks.replay_delivery)
    replay_failed_deliveries = now(webhooks.replay_failed_deliveries)
    get_operation = now(operations.get_operation)

    get_log_version = now(log.get_log_version)

    commit_transaction = now(keyvalue.commit_transaction)
    get_commit_status = now(keyvalue.get_commit_status)
    get_key = now(keyvalue.get_key)
    list_keys = now(keyvalue.list_keys)
    list_notification_subscriptions = now(subscriptions.list_notification_subscriptions)
    iterate_notification_subscriptions = each(subscriptions.list_notification_subscriptions)
    delete_notification_subscription = now(subscriptions.delete_notification_subscription)

    put_retention_policy = now(retention.put_retention_policy)
    get_retention_policy = now(retention.get_retention_policy)
    list_retention_policies = now(retention.list_retention_policies)
    delete_retention_policy = now(retention.delete_retention_policy)
    list_consumers = now(retention.list_consumers)
    iterate_consumers = each(retention.list_consumers)
    forget_consumer = now(retention.forget_consumer)

    create_tenant = now(administration.create_tenant)
    list_tenants = now(administration.list_tenants)
    iterate_tenants = each(administration.list_tenants)
    get_tenant = now(administration.get_tenant)
    set_tenant_state = now(administration.set_tenant_state)
    delete_tenant = now(administration.delete_tenant)
    set_quota = now(administration.set_quota)
    set_limits = now(administration.set_limits)
    get_quotas = now(administration.get_quotas)
    get_balance_of = now(balances.get_balance_of)
    set_balance_policy = now(balances.set_balance_policy)
    top_up_balance = now(balances.top_up_balance)
    withdraw_from_balance = now(balances.withdraw_from_balance)
    create_api_key = now(api_keys.create_api_key)
    list_api_keys = now(api_keys.list_api_keys)
    iterate_api_keys = each(api_keys.list_api_keys)
    rotate_api_key = now(api_keys.rotate_api_key)
    revoke_api_key = now(api_keys.revoke_api_key)
    create_own_api_key = now(api_keys.create_own_api_key)
    list_own_api_keys = now(api_keys.list_own_api_keys)
    iterate_own_api_keys = each(api_keys.list_own_api_keys)
    rotate_own_api_key = now(api_keys.rotate_own_api_key)
    revoke_own_api_key = now(api_keys.revoke_own_api_key)
    put_region = now(administration.put_region)
    put_sku = now(administration.put_sku)
    put_image = now(administration.put_image)
    list_all_images = now(administration.list_all_images)
    iterate_all_images = each(administration.list_all_images)
    get_image = now(administration.get_image)
    delete_image = now(administration.delete_image)
    create_node = now(administration.create_node)
    list_nodes = now(administration.list_nodes)
    iterate_nodes = each(administration.list_nodes)
    get_node = now(administration.get_node)
    create_enrolment_token = now(administration.create_enrolment_token)
    cordon_node = now(administration.cordon_node)
    uncordon_node = now(administration.uncordon_node)
    drain_node = now(administration.drain_node)
    set_node_attestation = now(administration.set_node_attestation)
    revoke_node_certificates = now(administration.revoke_node_certificates)
    list_approvals = now(approvals.list_approvals)
    iterate_approvals = each(approvals.list_approvals)
    get_approval = now(approvals.get_approval)
    approve_request = now(approvals.approve_request)
    reject_request = now(approvals.reject_request)
    withdraw_request = now(approvals.withdraw_request)
    plan_maintenance = now(maintenance.plan_maintenance)
    commit_maintenance = now(maintenance.commit_maintenance)
    list_maintenance = now(maintenance.list_maintenance)
    iterate_maintenance = each(maintenance.list_maintenance)
    get_maintenance = now(maintenance.get_maintenance)
    cancel_maintenance = now(maintenance.cancel_maintenance)
    end_maintenance = now(maintenance.end_maintenance)
    list_orphans = now(orphans.list_orphans)
    iterate_orphans = each(orphans.list_orphans)
    adopt_orphan = now(orphans.adopt_orphan)
    destroy_orphan = now(orphans.destroy_orphan)
    force_release = now(administration.force_release)
    force_cleanup = now(administration.force_cleanup)
    retire_node = now(administration.retire_node)
    list_all_allocations = now(administration.list_all_allocations)
    iterate_all_allocations = each(administration.list_all_allocations)
    get_any_allocation = now(administration.get_any_allocation)
    list_audit = now(administration.list_audit)
    iterate_audit = each(administration.list_audit)
    list_own_audit = now(administration.list_own_audit)
    iterate_own_audit = each(administration.list_own_audit)
    list_dead_letters = now(administration.list_dead_letters)
    iterate_dead_letters = each(administration.list_dead_letters)
    get_dead_letter = now(administration.get_dead_letter)
    retry_dead_letter = now(administration.retry_dead_letter)
    discard_dead_letter = now(administration.discard_dead_letter)
