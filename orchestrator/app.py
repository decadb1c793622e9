"""The only place where things are constructed: settings in, applications out. Nothing connects before it is asked to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute

from berth.process.combined_calls import CombinedCalls
from node_agent.protocol import HeartbeatAnswer
from orchestrator.allocations.commands.create import create_allocations
from orchestrator.allocations.queries import find_tenants_of_allocations
from orchestrator.catalogue.cache import CatalogueCache
from orchestrator.consoles.hub import ConsoleHub
from orchestrator.database.replicas.connections import standby_engine
from orchestrator.database.replicas.replica import Replica
from orchestrator.database.replicas.watch import ReplicaWatch
from orchestrator.database.schema_revision import require_schema_for_anyone
from orchestrator.database.transactions import Database, connect_database
from orchestrator.edge.audited_requests import AuditedRequests
from orchestrator.edge.batching import BatchBounds, Batcher
from orchestrator.edge.body_values import values_max_of
from orchestrator.edge.edge import ALWAYS_SERVED, PUBLIC_ZONE, Edge
from orchestrator.edge.fast_paths.node import NodeFastPath
from orchestrator.edge.fast_paths.public import FastPath
from orchestrator.edge.gate import Gate
from orchestrator.edge.node_limits import NodeLimits
from orchestrator.edge.routes import METRICS_ROUTES, NODE_ROUTES, PUBLIC_ROUTES, PUBLIC_WRITES
from orchestrator.edge.sources import TrustedProxies
from orchestrator.http import openapi as documents
from orchestrator.http import problem_documents as problems
from orchestrator.http.asgi import App
from orchestrator.http.audited.break_glass import INTERVAL_SECONDS, BreakGlassUses
from orchestrator.http.audited.key_uses import KeyUses
from orchestrator.http.audited.recorder import RequestRecorder
from orchestrator.http.authentication import Credentials
from orchestrator.http.failed_attempts import FailedAttempts
from orchestrator.http.metrics import KEY_SET_SERIAL
from orchestrator.http.object_owners import ObjectOwners
from orchestrator.http.oidc.bearer_tokens import BearerTokens
from orchestrator.http.oidc.issuer_documents import IssuerDocuments
from orchestrator.http.oidc.issuer_keys import IssuerKeys
from orchestrator.http.oidc.token_principals import ClaimRules
from orchestrator.http.oidc.tokens import TokenRules
from orchestrator.http.principal_limits import PrincipalLimits
from orchestrator.http.rate_limits import RateLimits, RequestClass
from orchestrator.http.services import Services
from orchestrator.http.single_flight import SingleFlightCache
from orchestrator.keyvalue.commands import commit_transactions
from orchestrator.log.feed.feed import Feed
from orchestrator.log.head import LogHead
from orchestrator.log.version_parameters import MIN_VERSION_HEADER
from orchestrator.nodes.certificates import load_authority, load_deploy_authority, load_pin, load_public_ca
from orchestrator.nodes.commands.heartbeat import record_unchanged
from orchestrator.nodes.issuer import Issuer
from orchestrator.nodes.issuer_settings import IssuerSettings
from orchestrator.notifications.acknowledgements import AcknowledgementWriter
from orchestrator.notifications.commands import acknowledge_events
from orchestrator.operations.execution import Context
from orchestrator.reservations.commands.confirm import confirm_reservation
from orchestrator.reservations.commands.hold import hold_resources
from orchestrator.reservations.hold_requests import HoldRequest
from orchestrator.reservations.queries import find_tenants_of_reservations
from orchestrator.settings import Settings
from orchestrator.sites.commands.issuance import issue_pending_of_agents
from orchestrator.tasks.dispatcher import Dispatcher
from orchestrator.tasks.key_set_file import KeySetFile
from orchestrator.tasks.queries import find_polling
from orchestrator.tasks.store.heartbeats import NodeReport
from orchestrator.tenants.commands.break_glass import note_break_glass_use
from orchestrator.tenants.principals import Principal
from orchestrator.webhooks.keys import load_webhook_keys

NODES_COMBINED_MAX = 500
"""Most polls, and most heartbeats, of one call."""


def build_services(settings: Settings) -> Services:
    """Everything the endpoints use, from settings alone. Raises OSError or ValueError for unusable key files."""
    database = _database(settings)
    gate = Gate(settings.gate)
    log_head = LogHead(database, settings.min_version_seconds_max)
    database.when_lost(gate.forget)
    database.when_lost(log_head.forget)
    context = Context(database, settings.limits(), None, settings.fault_labels_allowed, gate)
    platform = context.for_platform()
    confirming = replace(context, database=database.for_request(ending_verb="confirm"))
    catalogue = CatalogueCache(database, settings.catalogue_cache_seconds)
    background = _background_database(settings, "berth-orchestrator-audit").for_platform()
    key_uses = KeyUses(background)
    break_glass = BreakGlassUses(background, _note_break_glass)
    combined = _combined(settings)
    return Services(
        settings=settings,
        context=context,
        credentials=_credentials(settings, key_uses, break_glass),
        limits=_limits(settings),
        owners=_owners(database),
        catalogue=catalogue,
        gate=gate,
        creates=Batcher(
            "creates",
            lambda creates: create_allocations(context, catalogue, creates),
            queue_max=settings.combining_queue_max,
            **combined,
        ),
        holds=_holds(context, catalogue, settings),
        confirms=Batcher(
            "confirms", lambda confirms: confirm_reservation(confirming, confirms), queue_max=None, **combined
        ),
        commits=Batcher(
            "commits",
            lambda commits: commit_transactions(context, commits),
            queue_max=settings.combining_queue_max,
            **combined,
        ),
        polls=CombinedCalls(lambda nodes: find_polling(platform, nodes), items_max=NODES_COMBINED_MAX),
        heartbeats=_heartbeats(platform, settings),
        dispatcher=_dispatcher(platform, settings),
        consoles=ConsoleHub(context, settings.console_limits(), _console_address(settings)),
        log_head=log_head,
        feed=_feed(settings, database),
        replica_watch=_replica_watch(settings, database),
        acknowledging=AcknowledgementWriter(
            lambda acknowledged: acknowledge_events(context, acknowledged, settings.notifications_kept_seconds)
        ),
        recorder=RequestRecorder(background),
        key_uses=key_uses,
        key_set=KeySetFile(settings.key_set_file, KEY_SET_SERIAL.set) if settings.key_set_file else None,
        enrolment_pin=load_pin(settings.public_ca_file) if settings.public_ca_file else None,
        enrolment_ca=load_public_ca(settings.public_ca_file) if settings.public_ca_file else None,
        webhook_keys=load_webhook_keys(settings.webhook_key_file) if settings.webhook_key_file else None,
        schema=SingleFlightCache(lambda asked, _: require_schema_for_anyone(asked), 0.0),
    )


def _holds(context: Context, catalogue: CatalogueCache, settings: Settings) -> Batcher[HoldRequest]:
    return Batcher(
        "holds",
        lambda holds: hold_resources(context, catalogue, holds),
        queue_max=settings.combining_queue_max,
        places_of=lambda hold: hold.places,
        **_combined(settings),
    )


def _combined(settings: Settings) -> BatchBounds:
    return {"batch_max": settings.combined_max, "batches_in_flight_max": settings.combined_in_flight_max}


def _heartbeats(platform: Context, settings: Settings) -> CombinedCalls[NodeReport, HeartbeatAnswer | None]:
    allowed = settings.sandbox_allowed
    return CombinedCalls(
        lambda reports: record_unchanged(platform, reports, sandbox_allowed=allowed), items_max=NODES_COMBINED_MAX
    )


def _dispatcher(platform: Context, settings: Settings) -> Dispatcher:
    return Dispatcher(
        platform, tick_seconds=settings.task_dispatch_tick_seconds, batch_max=settings.task_dispatch_batch_max
    )


def build_issuer(settings: IssuerSettings) -> tuple[Issuer, Database]:
    """The issuer and its database. Raises OSError or ValueError for unusable key files."""
    database = connect_database(
        settings.database_url,
        pool_size=1,
        reserve_size=1,
        lock_timeout_seconds=settings.lock_timeout_seconds,
        transaction_timeout_seconds=settings.transaction_timeout_seconds,
        application="berth-issuer",
    )
    others = (issue_pending_of_agents,)
    deploy_authority = load_deploy_authority(settings)
    authority = load_authority(settings)
    return Issuer(database, authority, settings.issuer_poll_seconds, others, deploy_authority), database


def _database(settings: Settings) -> Database:
    database = connect_database(
        settings.database_url,
        pool_size=settings.database_pool_size,
        reserve_size=settings.database_reserve_size,
        lock_timeout_seconds=settings.lock_timeout_seconds,
        transaction_timeout_seconds=settings.transaction_timeout_seconds,
        application="berth-orchestrator",
        operations_max=settings.operations_max - settings.operations_max // 10,
        tenant_rows_max=settings.tenant_rows_max(),
    )
    if settings.read_database_url is not None:
        database.use_replica(Replica(settings.read_wait_seconds_max))
    return database


def _owners(database: Database) -> ObjectOwners:
    finders = {"allocations": find_tenants_of_allocations, "reservations": find_tenants_of_reservations}
    return ObjectOwners(database, finders)


def _limits(settings: Settings) -> PrincipalLimits:
    rates = RateLimits(settings.rates(), settings.rates_of_tenants)
    endings_max = settings.principal_endings_in_flight_max
    return PrincipalLimits(settings.principal_in_flight_max, endings_max, rates, settings.waiting())


def _feed(settings: Settings, database: Database) -> Feed:
    limits = settings.feed_limits()
    reading = _background_database(settings, "berth-orchestrator-feed", limits.readers_max + 1)
    if database.replica is not None:
        reading.use_replica(database.replica)
    return Feed(reading, limits)


def _replica_watch(settings: Settings, database: Database) -> ReplicaWatch | None:
    """What keeps the standbys of `database` examined; None where there are none."""
    if database.replica is None or settings.read_database_url is None:
        return None
    return ReplicaWatch(
        database.replica,
        standby_engine(settings.read_database_url, "berth-orchestrator-reads"),
        _background_database(settings, "berth-orchestrator-standbys"),
        size=settings.read_database_pool_size,
        lag_seconds_max=settings.read_lag_seconds_max,
    )


def _background_database(settings: Settings, application: str, pool_size: int = 1) -> Database:
    """Connections that requests do not use."""
    return connect_database(
        settings.database_url,
        pool_size=pool_size,
        reserve_size=1,
        lock_timeout_seconds=settings.lock_timeout_seconds,
        transaction_timeout_seconds=settings.transaction_timeout_seconds,
        application=application,
    )


def _console_address(settings: Settings) -> str | None:
    """Where agents reach this process for consoles; None: it serves none."""
    return settings.console_address if settings.console_port is not None else None


async def _note_break_glass(database: Database, principal: Principal, source: str | None) -> float:
    return await note_break_glass_use(database, principal, source=source, interval_seconds=INTERVAL_SECONDS)


def _credentials(settings: Settings, key_uses: KeyUses, break_glass: BreakGlassUses) -> Credentials:
    failed = FailedAttempts(settings.failed_attempts_max, settings.failed_attempts_per_second)
    return Credentials(settings.credential_cache_seconds, _bearer_tokens(settings), failed, key_uses.note, break_glass)


def _bearer_tokens(settings: Settings) -> BearerTokens | None:
    if settings.oidc_issuer is None:
        return None
    assert settings.oidc_audience is not None, "the settings require it with an issuer"
    documents = IssuerDocuments(
        settings.oidc_issuer,
        settings.oidc_jwks_url,
        timeout_seconds=settings.oidc_timeout_seconds,
        bytes_max=settings.oidc_document_bytes_max,
        ca_certificate_file=settings.oidc_ca_certificate_file,
    )
    keys = IssuerKeys(
        documents,
        cache_seconds=settings.oidc_cache_seconds,
        refetch_seconds=settings.oidc_refetch_seconds,
        stale_seconds_max=settings.oidc_stale_seconds_max,
    )
    return BearerTokens(
        keys,
        TokenRules(settings.oidc_issuer, settings.oidc_audience, settings.oidc_leeway_seconds),
        ClaimRules(
            settings.oidc_issuer,
            settings.oidc_tenant_claim,
            settings.oidc_role_claim,
            settings.oidc_operators(),
            settings.oidc_roles,
            settings.oidc_default_role,
        ),
        settings.credential_cache_seconds,
    )


def _application(
    services: Services,
    title: str,
    routes: Sequence[BaseRoute],
    lifespan: object = None,
    *,
    docs_ui: bool = False,
) -> FastAPI:
    app = FastAPI(
        title=title, version="1", openapi_url=None, docs_url=None, redoc_url=None,
        redirect_slashes=False,  # its Location repeats whatever Host the request named
        lifespan=lifespan,  # type: ignore[arg-type]
    )  # fmt: skip
    app.state.services = services
    problems.install(app)
    documents.install(app, docs_ui=docs_ui)
    app.router.routes.extend(routes)
    return app


def _edge(app: App, zone: str, settings: Settings) -> App:
    return Edge(
        app,
        zone=zone,
        body_bytes_max=settings.body_bytes_max,
        in_flight_max=settings.requests_in_flight_max,
        body_seconds_max=settings.body_seconds_max,
        body_values_max=values_max_of(settings.kv_operations_max + settings.kv_preconditions_max),
        proxies=TrustedProxies(settings.trusted_proxies if zone == PUBLIC_ZONE else (), settings.proxy_header),
        hsts_seconds=settings.hsts_seconds if zone == PUBLIC_ZONE else 0,
    )


def public_application(services: Services) -> FastAPI:
    """Tenant, admin, enrolment and health endpoints, without the edge (tests read its OpenAPI document)."""
    tokens = services.credentials.tokens

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        keys = tokens.keys.running() if tokens is not None else nullcontext()
        watch = services.replica_watch
        standbys = watch.running() if watch is not None else nullcontext()
        await documents.prepare(app)
        background = services.recorder.running(), services.key_uses.running()
        async with services.feed.running(), services.consoles.running(), background[0], background[1], keys, standbys:
            yield

    return _application(services, "Berth", PUBLIC_ROUTES, lifespan, docs_ui=services.settings.docs_ui)


def public_listener(services: Services) -> App:
    """What the public listener serves."""
    fast = FastPath(public_application(services), services, PUBLIC_WRITES)
    listener = _edge(AuditedRequests(fast, services), PUBLIC_ZONE, services.settings)
    if not services.settings.cors_origins:
        return listener
    return CORSMiddleware(
        listener,
        allow_origins=services.settings.cors_origins,
        allow_methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"],
        allow_headers=[
            "authorization",
            "content-type",
            "idempotency-key",
            "last-event-id",
            MIN_VERSION_HEADER,
            "x-request-id",
        ],
        expose_headers=[
            "berth-version",
            "idempotent-replayed",
            "ratelimit",
            "ratelimit-policy",
            "retry-after",
            "x-request-id",
        ],
    )


def node_application(services: Services) -> FastAPI:
    """Node endpoints, without the edge (tests read its OpenAPI document). A node's report is an act of the platform."""
    services = replace(services, context=services.context.for_platform())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with services.dispatcher.running():
            yield

    return _application(services, "Berth node API", NODE_ROUTES, lifespan)


def node_listener(services: Services) -> App:
    """What the node listener serves: mTLS only, identity from the certificate (DESIGN §8)."""
    settings = services.settings
    services = replace(services, context=services.context.for_platform())
    fast = NodeFastPath(node_application(services), services)
    rates = RateLimits(dict.fromkeys(RequestClass, settings.node_requests_per_second_max))
    limits = PrincipalLimits(settings.node_in_flight_max, settings.node_in_flight_max, rates, settings.waiting())
    app = NodeLimits(fast, limits, settings.trust_domain, ALWAYS_SERVED)
    return _edge(app, "node", settings)


def metrics_listener(services: Services) -> App:
    """What the metrics and health listener serves."""
    return _application(services, "Berth orchestrator metrics", METRICS_ROUTES)
