"""A server, clients that ask it honestly, and checks of the responses."""

import ctypes
import http.client
import json
import random
import re
import signal
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple

from processes import LONGEST, Process
from samples import FILLERS, WORDS

# Of a probability: which texts share a batch changes the last digits.
TOLERANCE = 1e-5
# How long a response may take.
MAX_SECONDS = 30.0
SECONDS_BETWEEN_LOOKS = 0.01
# Of Linux's prctl.
PR_SET_PDEATHSIG = 1


def wait_until(is_so, what, *, seconds=MAX_SECONDS, process=None):
    """Wait until something is so, while a process runs; returns what `is_so` found."""
    deadline = time.monotonic() + seconds
    while True:
        found = is_so()
        if found:
            return found

        errors = process.said() if process else ""
        assert process is None or process.runs_after(0), f"it ended: {errors}"
        assert time.monotonic() < deadline, f"{what}: not within {seconds:.0f} s: {errors}"
        time.sleep(SECONDS_BETWEEN_LOOKS)


@dataclass(frozen=True)
class Served:
    """A server that listens."""

    process: Process
    port: int

    def get(self, path):
        """The status and body of a path."""
        with self.connection() as connection:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()

    def connection(self):
        """A connection, which is closed at the end of a block."""
        return closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=MAX_SECONDS))

    def own_bytes(self):
        """The memory that is its own: neither shared with who started it, nor of files."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"RssAnon:\s+(\d+) kB", status)[0]) * 1024

    def stop(self):
        """Stop it; it must have had nothing to complain of."""
        self.process.signal(signal.SIGTERM)
        ended = self.process.end().check()
        assert "the prediction failed" not in ended.err, ended.err


def serve(space, run, *, port=0, prepare=lambda: None):
    """Start a server of a run, at a port or a free one; returns it once it listens."""

    def end_with_parent():
        # A try that fails stops no server.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        prepare()

    process = space.fork(["serve", run, "--port", str(port)], prepare=end_with_parent)
    pattern = re.compile(r" on http://127\.0\.0\.1:(\d+); ")
    found = wait_until(
        lambda: pattern.search(process.said()), "it listens", seconds=LONGEST, process=process
    )
    return Served(process, int(found[1]))


class Predictions:
    """The predictions of models for some texts, as of `predict`, by the SHA-256 of the model."""

    def __init__(self, draw):
        self.texts = []
        for _ in range(20):
            length = draw.choice([0, 1, 3, 9, 40])
            words = draw.choices(WORDS + FILLERS, k=length)
            self.texts.append(" ".join(words))
        self._known = {}

    def learn(self, folder):
        """Add the predictions of the model in a folder; returns its SHA-256."""
        from encoder_cls.classifier.model_folder import load_classifier
        from encoder_cls.classifier.prediction_json import prediction_json

        classifier = load_classifier(folder, engine="numpy")
        predictions = []
        for prediction in classifier.predict(self.texts):
            predictions.append(prediction_json(prediction, top_k=9))
        self._known[classifier.sha256] = predictions
        return classifier.sha256

    def check(self, chosen, response):
        """Fail unless a response has the predictions of one model for these texts."""
        assert response.keys() == {"predictions", "model"}, response
        model = response["model"]
        assert model in self._known, f"no model that was there has the hash {model}"
        for number, found in zip(chosen, response["predictions"], strict=True):
            expected = self._known[model][number]
            assert found.keys() >= expected.keys(), found
            assert found["truncated"] == expected["truncated"], found

            probabilities = _probabilities(found)
            known = _probabilities(expected)
            assert probabilities.keys() == known.keys(), found
            for label, probability in known.items():
                assert abs(probability - probabilities[label]) <= TOLERANCE, (
                    f"the model {model[:12]} never predicts {found} for {self.texts[number]!r}"
                )


def _probabilities(prediction):
    """The probability of each label of a prediction."""
    return {entry["label"]: entry["probability"] for entry in prediction["top"]}


class Outcome(NamedTuple):
    """What became of an honest request.

    Attributes:
        began: when it was sent.
        ended: when its outcome was known.
        status: of the response; 0 without one.
        what: what is wrong, if anything is.
    """

    began: float
    ended: float
    status: int
    what: str


class Load:
    """Clients that ask, each one request after the other, while a block runs."""

    def __init__(self, served, predictions, draw, *, clients):
        self.outcomes = []
        self._served = served
        self._predictions = predictions
        self._end = Event()
        self._threads = []
        for _ in range(clients):
            chance = random.Random(draw.random())
            self._threads.append(Thread(target=self._ask, args=(chance,), daemon=True))

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind, *_):
        self._end.set()
        for thread in self._threads:
            thread.join(MAX_SECONDS)
        assert kind or not any(thread.is_alive() for thread in self._threads), (
            "a client waits for ever"
        )

    def await_outcomes(self, count):
        """Wait for so many more outcomes."""
        most = len(self.outcomes) + count
        wait_until(lambda: len(self.outcomes) >= most, f"{count} responses")

    def check_all_requests_ended(self):
        """Fail unless each request got the right predictions."""
        bad = [outcome for outcome in self.outcomes if outcome.status != 200 or outcome.what]
        assert not bad, f"{len(bad)} of {len(self.outcomes)} requests: {bad[:3]}"
        assert self.outcomes, "nobody asked"

    def _ask(self, draw):
        """Be a client: ask until the end."""
        with self._served.connection() as connection:
            while not self._end.is_set():
                began = time.monotonic()
                status, what = self._ask_once(connection, draw)
                self.outcomes.append(Outcome(began, time.monotonic(), status, what))
                if what and not status:
                    time.sleep(SECONDS_BETWEEN_LOOKS)  # the server has ended

    def _ask_once(self, connection, draw):
        """Send a request, and check the response; returns its status and what is wrong."""
        texts = self._predictions.texts
        num_texts = draw.choice([1, 1, 1, 5, 30])
        chosen = draw.choices(range(len(texts)), k=num_texts)
        body = {
            "texts": [texts[number] for number in chosen],
            "top_k": 9,
            "explain": num_texts == 5,
        }

        status = 0
        try:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", "/predict", json.dumps(body), headers)
            response = connection.getresponse()
            content = json.loads(response.read())
            status = response.status
            if status == 200:
                self._predictions.check(chosen, content)
        except AssertionError as error:
            return status, str(error)
        except (OSError, http.client.HTTPException, ValueError) as error:
            connection.close()
            return status, f"{type(error).__name__}: {error}"
        return status, ""
