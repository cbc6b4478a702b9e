"""The server of `serve`: it starts, reloads its model and shuts down."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock, Thread

import uvicorn

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.errors import ConfigError, StoppedError
from encoder_cls.serving import limits
from encoder_cls.serving.app import Service
from encoder_cls.system.display import listed
from encoder_cls.system.terminal import discard_output_to_lost_terminal, has_lost_terminal
from encoder_cls.system.web.connections import max_connections
from encoder_cls.system.web.origins import host_name, is_loopback
from encoder_cls.system.web.server import Server, listening, uvicorn_config
from encoder_cls.system.web.server_limits import MAX_CONNECTIONS

# The number of characters of a model's SHA-256 that log lines show.
SHORT_HASH_LENGTH = 12


def serve(
    folder: Path,
    *,
    host: str,
    port: int,
    allowed_hosts: Sequence[str],
    keep_alive: int,
    same_labels: bool,
    log: Callable[[str], None],
) -> None:
    """Serve the classifier of a run or model folder until a signal stops the server.

    SIGTERM and SIGINT stop the server after the accepted requests have their responses, a second
    one at once. SIGHUP loads the model again.

    Args:
        port: 0 takes any free port.
        allowed_hosts: names that requests may use besides `host`, `localhost` and IP addresses.
            Without any, all names may be used, unless `host` is a loopback address.
        keep_alive: seconds for which a connection stays open without a request.
        same_labels: whether a model with other classes is not loaded.
        log: called with a line for each change of state and each failure.

    Raises:
        ConfigError: this machine has no address `host`.
        EncoderClsError: the port cannot be used, or the classifier not loaded.
        StoppedError: by a second signal, before all requests had responses.
    """
    # Open the socket first, so that a port in use is reported before the model is loaded.
    with listening(host, port) as listener:
        is_local = is_loopback(listener.getsockname()[0])
        hosts: list[str] | None = None
        if allowed_hosts or is_local:
            names = [host_name(name) for name in (host, *allowed_hosts)]
            hosts = [name for name in names if name and not is_loopback(name)]

        service = Service(_load_and_try(folder), log, hosts)
        config = uvicorn_config(
            service.app(),
            keep_alive=keep_alive,
            closing_seconds=limits.CLOSING_SECONDS,
            on_refused=service.count_refused_connection,
        )
        # `_Server.startup` sets the length of the queue of the system.
        config.backlog = limits.ACCEPTED_AT_ONCE
        server = _Server(config, service, folder, log, same_labels=same_labels)
        server.run(sockets=[listener])

    if server.stop_error:
        raise server.stop_error
    log("stopped; all accepted requests got their responses")


class _Server(Server):
    """A server that finishes all accepted requests at a signal, and reloads its classifier.

    Attributes:
        stop_error: that of a second stop signal.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        service: Service,
        folder: Path,
        log: Callable[[str], None],
        *,
        same_labels: bool,
    ) -> None:
        super().__init__(config)
        self.stop_error: StoppedError | None = None
        self._service = service
        self._folder = folder
        self._log = log
        self._same_labels = same_labels
        # Held while the model is reloaded, so that two reloads run one after the other.
        self._reload_lock = Lock()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if max_connections() < MAX_CONNECTIONS:
            self._log(
                f"warning: at most {max_connections()} connections, half of the files that this"
                " process may open (`ulimit -n`)"
            )
        for listener in sockets or []:
            # asyncio uses `backlog` both for the number of connections that it accepts at once
            # and for the queue of the system. Call `listen` again to make only the queue longer.
            listener.listen(limits.BACKLOG)
            self._log_address(listener)

    def _log_address(self, listener: socket.socket) -> None:
        host, port = listener.getsockname()[:2]
        if not is_loopback(host):
            self._log(f"warning: listening on {host} without authentication or TLS")
        address = f"[{host}]" if ":" in host else host
        model = self._service.classifier.sha256[:SHORT_HASH_LENGTH]
        self._log(
            f"serving {self._folder} (model {model}) on http://{address}:{port};"
            " press Ctrl-C to stop"
        )

    def on_hangup(self, number: int) -> None:
        """Reload the model, or stop if the terminal has been closed."""
        if not has_lost_terminal():
            Thread(target=self._reload, daemon=True).start()
            return

        discard_output_to_lost_terminal()
        # The system and the shell may both send SIGHUP. The second one must not count as a second
        # stop signal, which would leave requests without a response.
        if not self._service.batcher.is_stopping:
            self.on_stop_signal(number)

    def on_stop_signal(self, number: int) -> None:
        """Stop after the accepted requests, or at once at a second signal."""
        batcher = self._service.batcher
        if batcher.is_stopping:
            self._exit_now(number)
            return
        batcher.stop()
        self._log(
            f"stopping: {batcher.num_waiting} requests wait for their responses;"
            " press Ctrl-C again to stop at once"
        )
        Thread(target=self._finish_requests_and_exit, daemon=True).start()

    def _finish_requests_and_exit(self) -> None:
        # For a moment keep the connections open and respond to new requests with the status 503,
        # so that clients and load balancers learn that they should use another server.
        time.sleep(limits.STOPPING_SECONDS)
        self._service.batcher.thread.join()
        self.should_exit = True

    def _exit_now(self, number: int) -> None:
        if self.stop_error is None:
            num_waiting = self._service.batcher.num_waiting
            reason = f"stopped at once; requests without a response: {num_waiting}"
            self.stop_error = StoppedError(reason, signal_number=number)
        self.force_exit = True
        self.should_exit = True
        # Close all connections, because the server of Python 3.12 and later waits for them.
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    def _reload(self) -> None:
        with self._reload_lock:
            reloads = self._service.metrics.reloads
            old = self._service.classifier
            try:
                new = _load_and_try(self._folder)
                difference = _difference_of_labels(old, new)
                if self._same_labels:
                    _check_same_labels(difference)
            # Keep the old model after any error: a damaged folder must not stop the server.
            except Exception as error:
                reloads.labels("failed").inc()
                old_model = old.sha256[:SHORT_HASH_LENGTH]
                self._log(f"warning: not reloaded, model {old_model} stays in use: {error}")
                return

            self._service.classifier = new
            reloads.labels("done").inc()
            self._log(f"reloaded: model {new.sha256[:SHORT_HASH_LENGTH]}")
            if difference:
                self._log(f"warning: the reloaded model has other classes: {difference}")


def _difference_of_labels(old: Classifier, new: Classifier) -> str:
    """The classes that a new model has added or lost, and its task if that changed."""
    old_names = set(old.label_names)
    new_names = set(new.label_names)
    added = [name for name in new.label_names if name not in old_names]
    gone = [name for name in old.label_names if name not in new_names]

    differences = []
    if new.task is not old.task:
        differences.append(f"its task is {new.task.name}, not {old.task.name}")
    if added:
        differences.append(f"added: {listed(added)}")
    if gone:
        differences.append(f"gone: {listed(gone)}")
    return "; ".join(differences)


def _check_same_labels(difference: str) -> None:
    if difference:
        raise ConfigError(f"--same-labels: the new model has other classes: {difference}")


def _load_and_try(folder: Path) -> Classifier:
    """Load a classifier and predict one text, so that errors appear before it is used.

    The engine is NumPy, so that equal texts get equal predictions under any load, and the slow
    import of PyTorch never delays requests.
    """
    classifier = load_classifier(folder, engine="numpy")
    classifier.predict(["a text"])
    return classifier
