"""The composition root: the only module that sees all packages.

Start: the port is bound first, so that nothing else has started when it is taken. Then storage opens (lock,
migrations), turns of an earlier process are resumed or ended, and the server accepts calls. MCP servers connect in the
background; the first turns wait a few seconds for them.

Stop: health checks report it, watches end and new calls are refused, turns stop and their text is saved, then MCP
servers, providers and finally storage close.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self

import structlog
from msgspec.structs import replace

from turnwire.api.admission.overload import Overload
from turnwire.api.gate import Gate
from turnwire.api.grpc.server import GrpcLimits, GrpcServer
from turnwire.api.grpc.tls import ServerCertificates
from turnwire.api.grpc.unix_socket import SocketAccess
from turnwire.api.registry import Service, all_services
from turnwire.api.wire.codec import ProtoCodec
from turnwire.config import Config
from turnwire.config.addresses import host_and_port
from turnwire.config.auth import missing_protection
from turnwire.config.reload import reloaded
from turnwire.config.sections import TlsConfig
from turnwire.core.environment import Environment
from turnwire.core.intake.requests import NamedRequests
from turnwire.core.quotas import RequestRates
from turnwire.core.turns.registry import TurnCounts, Turns
from turnwire.core.use_cases import UseCases
from turnwire.core.use_cases.asking import Permissions, Questions
from turnwire.core.use_cases.catalog import Catalog
from turnwire.core.use_cases.explanation import ContextExplainer
from turnwire.core.use_cases.forks import SessionForks
from turnwire.core.use_cases.late_turns import LateTurns
from turnwire.core.use_cases.messages import Conversations
from turnwire.core.use_cases.moving.exports import Exports
from turnwire.core.use_cases.moving.formats import OWN, Formats
from turnwire.core.use_cases.moving.imports import Imports
from turnwire.core.use_cases.paths import Paths
from turnwire.core.use_cases.searches import MessageSearches
from turnwire.core.use_cases.sessions import Sessions
from turnwire.core.use_cases.titles import Titles
from turnwire.core.use_cases.tool_leases import ToolLeases
from turnwire.core.use_cases.tool_results import ToolResults
from turnwire.core.use_cases.turns import TurnRecords
from turnwire.core.use_cases.uploads import Files, UploadExpiry, Uploads
from turnwire.core.use_cases.usage import UsageReports
from turnwire.core.use_cases.waiting_messages import WaitingMessages
from turnwire.core.watches.conflated import ConflatedWatches
from turnwire.core.watches.watch import Watches
from turnwire.domain.errors import StorageError
from turnwire.domain.ids import new_id
from turnwire.feed.memory import Feed
from turnwire.identity.authentication import Authentication
from turnwire.identity.certificates import Certificates
from turnwire.identity.everybody import Everybody
from turnwire.identity.own_tokens import OwnTokens
from turnwire.interop.archive.bounds import ArchiveLimits
from turnwire.interop.archives import READERS, WRITERS
from turnwire.interop.turnwire_lines.reading import LinesReader, longest_line
from turnwire.interop.turnwire_lines.writing import LinesWriter
from turnwire.ports.clock import PatientClock, utc_now
from turnwire.ports.codec import Codec
from turnwire.ports.identity.authenticator import Authenticator
from turnwire.ports.moving.archives import ArchiveFormat, ArchiveWriter
from turnwire.ports.telemetry.observer import Observer
from turnwire.ports.telemetry.tracing import NO_TRACER, Tracer
from turnwire.providers.registry import ConfiguredProviders
from turnwire.storage.sql.store import SqlStore
from turnwire.storage.sqlite.store import SqliteStore, StorageSettings
from turnwire.storage.tokens import open_tokens
from turnwire.telemetry.memory_monitor import memory_limit
from turnwire.telemetry.observing import observing
from turnwire.telemetry.readings import Readings
from turnwire.tools.mcp.servers import McpServers

if TYPE_CHECKING:
    from turnwire.api.web.server import WebServer
    from turnwire.cluster.node import Node

log = structlog.get_logger()

_Listeners = tuple["GrpcServer | WebServer", ...]


class Server:
    """One Turnwire server; an asynchronous context manager. Entering starts it, leaving stops it."""

    def __init__(self, config: Config, environ: Mapping[str, str], *, shares_ports: bool = False) -> None:
        """Use `create_server`."""
        self._config, self._environ = _with_memory_of_machine(config), environ
        self._shares_ports = shares_ports
        if config.web.listen:  # before the event loop is watched, which an import of a tenth of a second holds
            import turnwire.api.web.server  # noqa: PLC0415 - `_bind_web` takes it from there
        if config.storage.url:
            import turnwire.storage.postgres.store  # noqa: PLC0415
        if config.cluster.listen:
            import turnwire.cluster.node  # noqa: F401, PLC0415
        self._running = AsyncExitStack()
        self._ended = asyncio.Event()
        self.failure: StorageError | None = None
        """Why the server can no longer work and must be stopped; None while it works."""
        self.overload = Overload(self._config.limits, self._config.server.max_message_bytes)
        """The calls of all listeners."""
        self._turns: Turns | None = None
        self._environment: Environment | None = None
        self._rates: RequestRates | None = None
        self._providers: list[ConfiguredProviders] = []
        """Those in use, which are the last, and those before them, which running turns may still call."""
        self._feed: Feed | None = None
        self._store: SqlStore | None = None
        self._node: Node | None = None
        """The node of a cluster; None for a server that has its database for itself."""
        self.address = ""
        """The address that it listens on, with the actual port; "" before the start."""
        self.web_address = ""
        """The URL of the web listener, with the actual port; "" before the start and without that listener."""
        self.metrics_address = ""
        """The address of the metrics, with the actual port; "" before the start and without metrics."""
        self.left = TurnCounts(0, 0, 0)
        """The work that the next start continues; known after the stop."""

    async def __aenter__(self) -> Self:
        """Starts the server; returns when it accepts calls. If it fails, everything started so far is closed.

        Raises:
            StorageError: the database is in use, damaged or from a newer version.
            OSError: the address is taken.
        """
        async with AsyncExitStack() as starting:
            await self._start(starting)
            self._running = starting.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stops the server. Running turns continue at the next start or end as interrupted; their text is saved."""
        await self._running.aclose()
        self._ended.set()

    async def wait_ended(self) -> None:
        """Returns when the server has stopped or has failed (see `failure`). Safe to cancel."""
        await self._ended.wait()

    def readings(self) -> Readings:
        """Returns how much the server has to do now; nothing before the start."""
        turns = TurnCounts(0, 0, 0) if self._turns is None else self._turns.counts()
        watchers = 0 if self._feed is None else self._feed.open_watchers
        load = (self.overload.calls, self.overload.is_memory_critical)
        return Readings(turns.running, turns.waiting, turns.queued, watchers, *load)

    def reload(self, config: Config) -> None:
        """Lets a configuration that was read again take effect for what begins from now on, as far as it can.

        Turns that run keep their settings and providers. The log says what took effect and what needs a restart.
        """
        assert self._environment and self._rates and self._providers
        before, renewed = self._config, reloaded(self._config, _with_memory_of_machine(config))
        settings, providers = renewed.config.core_settings(), None
        models = (config.providers, config.provider_sources, config.models)
        if (before.providers, before.provider_sources, before.models) != models:
            providers = self._providers[-1].renewed(*models)
        # Nothing above changes anything, so that what fails there leaves all as it was.
        self._config = renewed.config
        self._environment.settings = settings
        if (before.quotas, before.tenants) != (config.quotas, config.tenants):
            self._rates.renew(settings)
        if providers is not None:
            self._providers.append(providers)
            self._environment.providers = providers
            providers.start()
        log.info("configuration_reloaded", changed=" ".join(renewed.changed))
        if renewed.needs_restart:
            log.warning("configuration_needs_restart", keys=" ".join(renewed.needs_restart))

    async def _stop_turns(self, turns: Turns) -> None:
        self.left = await turns.aclose()

    def _problem(self) -> str:
        """Returns why calls cannot be carried out; "" if they can."""
        is_writable = self._store is not None and self._store.is_writable()
        return "" if self.failure is None and is_writable else "the database cannot be written"

    def _fail(self, error: StorageError) -> None:
        log.error("database_lost", reason=error.reason, message=error.message)
        self.failure = error
        self._ended.set()

    async def _start(self, stack: AsyncExitStack) -> None:
        """Starts one part after the other. `stack` closes them in the opposite order."""
        config, codec = self._config, ProtoCodec()
        tracer = await stack.enter_async_context(_tracing(config))
        listener = self._bind(tracer, stack)
        observer = await self._observe(stack)
        listeners: _Listeners = (listener, *self._bind_web(tracer, stack))
        feed = self._feed = _start_feed(config, codec, observer, stack)
        node = self._node = self._bind_node(stack)
        store = self._store = await self._open_store(codec, feed, observer, stack)
        providers = self._open_providers(stack)
        environment = self._environment = Environment(
            store=store,
            feed=feed,
            providers=providers,
            settings=config.core_settings(),
            clock=utc_now,
            new_id=new_id if node is None else node.new_id,
            tools=self._start_tools(stack),
            observer=observer,
            tracer=tracer,
        )
        self.overload.caches += (environment.conversations.clear,)
        rates = self._rates = RequestRates(environment.settings)
        use_cases = await self._start_turns(environment, rates, codec, stack)
        _expire_uploads(environment, stack)
        authenticator = await _open_authenticator(config, stack)
        gate = Gate(authenticator, self.overload, rates.admit, observer)
        stack.callback(store.end_soon)
        services: Sequence[Service] = all_services(use_cases, authenticator.offered)
        if node is not None:
            services = await self._join_cluster(node, environment, codec, services, stack, imports=use_cases.imports)
        await self._listen(listeners, services, gate, stack)
        providers.start()
        stack.callback(feed.close)
        stack.push_async_callback(listener.refuse_work)
        if node is not None:
            stack.push_async_callback(node.give_all)
        self._log_start()

    def _bind(self, tracer: Tracer, stack: AsyncExitStack) -> GrpcServer:
        """Takes the address. Calls wait until the listener starts."""
        config = self._config
        limits = GrpcLimits(config.limits, config.server.max_message_bytes, config.server.max_connections)
        certificates = _certificates(config.tls)
        listener = GrpcServer(limits, self.overload, certificates, tracer, shares_port=self._shares_ports)
        stack.push_async_callback(listener.stop, timedelta())
        access = SocketAccess(int(config.server.socket_mode, 8), config.server.socket_group_id())
        self.address = listener.bind(config.server.listen, access)
        return listener

    def _bind_web(self, tracer: Tracer, stack: AsyncExitStack) -> tuple["WebServer", ...]:
        """Takes the address of the web listener, if there is one. Calls wait until it starts."""
        config, tls = self._config.web, self._config.tls
        if not config.listen:
            return ()
        # a seventh of what a server imports, and needless without the listener
        from turnwire.api.web.certificates import WebCertificates  # noqa: PLC0415
        from turnwire.api.web.server import WebServer, WebSettings  # noqa: PLC0415

        limits = (self._config.server.max_message_bytes, config.max_connections)
        host, port = host_and_port(config.listen)
        max_bodies = self._config.limits.max_bodies_bytes
        settings = WebSettings(*limits, config.allowed_origins, (host, *config.allowed_hosts), max_bodies)
        certificates = WebCertificates(tls.cert, tls.key) if tls.cert and tls.key else None
        web = WebServer(settings, certificates, tracer, problem=self._problem)
        stack.push_async_callback(web.stop, timedelta())
        self.web_address = web.bind(host, port, shares_port=self._shares_ports)
        return (web,)

    def _bind_node(self, stack: AsyncExitStack) -> "Node | None":
        """Takes the address for the other nodes, if there are any. Calls wait until the node starts."""
        config = self._config.cluster
        if not config.listen:
            return None
        from turnwire.cluster.node import Node, NodeCertificates  # noqa: PLC0415 - for nodes alone

        files = (config.cert, config.key, config.ca)
        node = Node(NodeCertificates(*filter(None, files)) if all(files) else None)
        stack.push_async_callback(node.aclose)
        node.bind(config.listen, config.advertise)
        return node

    async def _join_cluster(
        self,
        node: "Node",
        environment: Environment,
        codec: Codec,
        services: Sequence[Service],
        stack: AsyncExitStack,
        *,
        imports: Imports,
    ) -> Sequence[Service]:
        """Takes shards, and returns the services for callers."""
        from turnwire.cluster.sessions import NodeSessions  # noqa: PLC0415 - for nodes alone
        from turnwire.core.watches.parts import WatchParts  # noqa: PLC0415 - for nodes alone
        from turnwire.storage.postgres.store import PostgresStore  # noqa: PLC0415 - an extra

        assert self._turns is not None and isinstance(self._store, PostgresStore)
        sessions = NodeSessions(self._turns, environment.conversations, environment.feed, imports, self._store.forget)
        stack.push_async_callback(node.give_all)
        parts = WatchParts(environment, self._turns, codec)
        locks, busy = await self._store.locks(), self._store.busy_sessions
        environment.servers = node
        return await node.start(
            locks,
            sessions,
            environment,
            parts,
            shares=imports.shares,
            services=services,
            busy=busy,
            on_failure=self._fail,
        )

    async def _listen(
        self, listeners: _Listeners, services: Sequence[Service], gate: Gate, stack: AsyncExitStack
    ) -> None:
        """Starts the listeners. They stop at the same time, so that a stop takes one grace period."""
        for listener in listeners:
            await listener.start(services, gate)
        grace = timedelta(seconds=self._config.server.shutdown_grace_seconds)

        async def stop() -> None:
            await asyncio.gather(*(listener.stop(grace) for listener in listeners))

        stack.push_async_callback(stop)

    async def _observe(self, stack: AsyncExitStack) -> Observer:
        overload = self.overload
        observation = await stack.enter_async_context(
            observing(self._config, self.readings, overload.note_memory, overload.drop_caches)
        )
        self.metrics_address = observation.metrics_address
        return observation.observer

    async def _open_store(self, codec: Codec, feed: Feed, observer: Observer, stack: AsyncExitStack) -> SqlStore:
        config = self._config.storage
        parts = (codec, feed.publish_stored, self._fail, observer)
        kept, days = config.retained_events_per_session, config.retained_events_days
        store: SqlStore
        if config.url:
            from turnwire.storage.postgres.store import PostgresSettings, PostgresStore  # noqa: PLC0415 - an extra

            address = None if self._node is None else self._node.address
            server = PostgresSettings(
                url=config.url, node=address, retained_events_per_session=kept, retained_events_days=days
            )
            store = await PostgresStore.open(server, *parts, is_watched=feed.is_watched)
        else:
            file = StorageSettings(path=config.path, retained_events_per_session=kept, retained_events_days=days)
            store = await SqliteStore.open(file, *parts, is_watched=feed.is_watched)
        stack.push_async_callback(store.aclose)
        for event, facts in store.warnings().items():
            log.warning(event, **facts)
        return store

    def _open_providers(self, stack: AsyncExitStack) -> ConfiguredProviders:
        config = self._config
        sources = (self._environ, config.provider_sources)
        providers = ConfiguredProviders(config.providers, *sources, config.models, limits=config.limits)
        self._providers.append(providers)

        async def close() -> None:
            for one in self._providers:
                await one.aclose()

        stack.push_async_callback(close)
        return providers

    def _start_tools(self, stack: AsyncExitStack) -> McpServers:
        tools = McpServers(self._config.mcp, self._environ)
        stack.push_async_callback(tools.aclose)
        tools.start()
        return tools

    async def _start_turns(
        self, environment: Environment, rates: RequestRates, codec: Codec, stack: AsyncExitStack
    ) -> UseCases:
        """Makes the use cases, and lets the turns of an earlier process go on."""
        turns = self._turns = Turns(environment)
        use_cases = _use_cases(environment, turns, rates=rates, codec=codec, config=self._config)
        # after the turns: a deletion waits for the end of one, which is written again and again until the turns stop
        for ending in (environment.detached, use_cases.titles):
            stack.push_async_callback(ending.aclose)
        stack.push_async_callback(self._stop_turns, turns)
        if self._node is None:
            await turns.recover()
        for acting in (use_cases.imports, use_cases.uploads):
            stack.push_async_callback(acting.aclose)
        return use_cases

    def _log_start(self) -> None:
        config = self._config
        for listen, address in ((config.server.listen, self.address), (config.web.listen, self.web_address)):
            if missing := missing_protection(listen, config.tls, config.auth):
                log.warning("open_to_other_machines", address=address, missing=" ".join(missing))
        log.debug("serving", address=self.address, database=config.storage.url or str(config.storage.path))


def create_server(config: Config, environ: Mapping[str, str], *, shares_ports: bool = False) -> Server:
    """Returns a server that is not started.

    Args:
        config: The configuration.
        environ: The environment, for the API keys of providers and the variables of MCP servers.
        shares_ports: Whether other processes listen on the same addresses, each for a part of the connections.
    """
    return Server(config, environ, shares_ports=shares_ports)


def _with_memory_of_machine(config: Config) -> Config:
    """Returns the configuration with as much memory as the control group of this process has, if that is less."""
    limits = replace(config.limits, max_memory_bytes=memory_limit(config.limits.max_memory_bytes))
    return replace(config, limits=limits)


def _tracing(config: Config) -> AbstractAsyncContextManager[Tracer]:
    if not config.tracing.enabled:
        return contextlib.nullcontext(NO_TRACER)
    from turnwire.telemetry.tracing import tracing  # noqa: PLC0415 - needs the extra, and imports an SDK

    return tracing(config.tracing)


def _start_feed(config: Config, codec: Codec, observer: Observer, stack: AsyncExitStack) -> Feed:
    tick = timedelta(seconds=config.server.heartbeat_seconds) / 5
    feed = Feed(codec, config.limits.max_watchers, tick=tick, observer=observer)
    stack.push_async_callback(_cancel, asyncio.create_task(feed.run(), name="feed ticks"))
    return feed


def _expire_uploads(environment: Environment, stack: AsyncExitStack) -> None:
    expiry = UploadExpiry(environment, PatientClock(utc_now, environment.settings.files.upload_expiry))
    stack.push_async_callback(expiry.aclose)
    expiry.start()


def _use_cases(
    environment: Environment, turns: Turns, *, rates: RequestRates, codec: Codec, config: Config
) -> UseCases:
    heartbeat = timedelta(seconds=config.server.heartbeat_seconds)
    tool_results, requests = ToolResults(environment, turns), NamedRequests(environment.store, environment.detached)
    formats = _formats(config)
    sessions = Sessions(environment, turns, requests)
    titles = Titles(environment, sessions.give_title)
    sessions.before_removal = titles.cancel
    turns.when_ended(titles.note_ended)
    return UseCases(
        conversations=Conversations(environment, turns, requests, tool_results=tool_results),
        tool_results=tool_results,
        tool_leases=ToolLeases(environment, turns, requests),
        sessions=sessions,
        titles=titles,
        forks=SessionForks(environment, turns, requests),
        paths=Paths(environment, turns, requests),
        late_turns=LateTurns(environment, turns, requests),
        waiting_messages=WaitingMessages(environment, turns, requests),
        turns=TurnRecords(environment, turns),
        permissions=Permissions(environment, turns),
        questions=Questions(environment, turns, requests),
        explainer=ContextExplainer(environment),
        catalog=Catalog(environment, config.shown_limits()),
        files=Files(environment),
        uploads=Uploads(environment, requests),
        usage=UsageReports(environment, turns, rates),
        exports=Exports(environment, formats),
        imports=Imports(environment, formats),
        searches=MessageSearches(environment),
        watches=Watches(environment, turns, codec, heartbeat),
        conflated=ConflatedWatches(environment, turns),
    )


def _formats(config: Config) -> Formats:
    """Returns the formats of archives: Turnwire's own, and those of other systems."""
    bounds = ArchiveLimits(file_bytes=config.files.max_bytes)
    formats = {
        name: ArchiveFormat(
            READERS[name](utc_now, bounds) if name in READERS else None,
            _without_choice(WRITERS[name]) if name in WRITERS else None,
        )
        for name in {*READERS, *WRITERS}
    }
    own = LinesReader(longest_line(config.files.max_bytes, config.limits.max_message_bytes))
    formats[OWN] = ArchiveFormat(own, lambda include_files: LinesWriter(include_files=include_files))
    return Formats(formats)


def _without_choice(make: Callable[[], ArchiveWriter]) -> Callable[[bool], ArchiveWriter]:
    """Returns a maker of writers that know nothing of files: they write those that they get."""
    return lambda _include_files: make()


def _certificates(tls: TlsConfig) -> ServerCertificates | None:
    """Raises UnusableCertificates: the files do not work."""
    if tls.cert is None or tls.key is None:
        return None
    return ServerCertificates(tls.cert, tls.key, tls.client_ca)


async def _open_authenticator(config: Config, stack: AsyncExitStack) -> Authenticator:
    """Returns what identifies callers; the stack closes it. Raises StorageError: the tokens cannot be opened."""
    auth = config.auth
    if not auth.methods:
        return Everybody()
    tokens, web_tokens = None, None
    if "token" in auth.methods:
        tokens = OwnTokens(await open_tokens(config.token_place()), utc_now)
        stack.push_async_callback(tokens.aclose)
        await tokens.start()
    if auth.jwt is not None:
        from turnwire.identity.web_tokens.verification import JsonWebTokens  # noqa: PLC0415 - of an extra

        web_tokens = JsonWebTokens(auth.jwt)
        stack.push_async_callback(web_tokens.aclose)
        await web_tokens.start()
    certificates = None if auth.mtls is None else Certificates(auth.mtls)
    return Authentication(auth.methods, tokens=tokens, jwt=web_tokens, certificates=certificates)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
