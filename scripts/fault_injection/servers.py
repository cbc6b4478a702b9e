"""A server, clients that ask it honestly, and checks of their answers."""

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

TOLERANCE = 1e-5  # of a probability: which texts share a batch changes the last digits
MOST_SECONDS = 30.0  # for an answer
SECONDS_BETWEEN_LOOKS = 0.01
PR_SET_PDEATHSIG = 1  # of Linux's prctl


def wait_until(is_so, what, *, seconds=MOST_SECONDS, process=None):
    """Wait for what must come while a process runs; what came."""
    deadline = time.monotonic() + seconds
    while not (found := is_so()):
        assert process is None or process.runs_after(0), f"it ended: {process.said()}"
        assert time.monotonic() < deadline, (
            f"{what}: not within {seconds:.0f} s: {process and process.said()}"
        )
        time.sleep(SECONDS_BETWEEN_LOOKS)
    return found


@dataclass(frozen=True)
class Served:
    """A server that listens."""

    process: Process
    port: int

    def get(self, path):
        """The status and body of a path."""
        with closing(
            http.client.HTTPConnection("127.0.0.1", self.port, timeout=MOST_SECONDS)
        ) as connection:
            connection.request("GET", path)
            reply = connection.getresponse()
            return reply.status, reply.read().decode()

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
    """A server of a run, at a port or a free one, once it listens."""

    def end_with_parent():  # also where a try fails, which stops no server
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        prepare()

    process = space.fork(["serve", run, "--port", str(port)], prepare=end_with_parent)
    pattern = re.compile(r" on http://127\.0\.0\.1:(\d+); ")
    found = wait_until(
        lambda: pattern.search(process.said()), "it listens", seconds=LONGEST, process=process
    )
    return Served(process, int(found[1]))


class Answers:
    """The answers of models to some texts, as of `predict`, by the SHA-256 of the model."""

    def __init__(self, draw):
        self.texts = [
            " ".join(draw.choices(WORDS + FILLERS, k=draw.choice([0, 1, 3, 9, 40])))
            for _ in range(20)
        ]
        self._known = {}

    def learn(self, folder):
        """Add those of the model that is in a folder; its SHA-256."""
        from encoder_cls.classifier.model_folder import load_classifier

        classifier = load_classifier(folder, engine="numpy")
        predicted = classifier.predict(self.texts)
        self._known[classifier.sha256] = [
            it.to_json(top_k=9, threshold=0.0, words=None) for it in predicted
        ]
        return classifier.sha256

    def check(self, chosen, reply):
        """Fail unless a reply has the answers of one model to these texts."""
        assert reply.keys() == {"predictions", "model"}, reply
        assert reply["model"] in self._known, (
            f"no model that was there has the hash {reply['model']}"
        )
        for number, found in zip(chosen, reply["predictions"], strict=True):
            expected = self._known[reply["model"]][number]
            assert found.keys() >= expected.keys(), found
            assert found["truncated"] == expected["truncated"], found
            probabilities, known = (
                {it["label"]: it["probability"] for it in one["top"]} for one in (found, expected)
            )
            assert probabilities.keys() == known.keys(), found
            far = [label for label in known if abs(known[label] - probabilities[label]) > TOLERANCE]
            assert not far, (
                f"the model {reply['model'][:12]} never said {found} to {self.texts[number]!r}"
            )


class Outcome(NamedTuple):
    """When an honest request was sent, when its outcome was known, its status (0: no answer) and its error."""

    began: float
    ended: float
    status: int
    what: str


class Load:
    """Clients that ask, each one request after the other, while a block runs."""

    def __init__(self, served, answers, draw, *, clients):
        self.outcomes, self._served, self._answers, self._end = [], served, answers, Event()
        seeds = [draw.random() for _ in range(clients)]
        self._threads = [
            Thread(target=self._ask, args=(random.Random(seed),), daemon=True) for seed in seeds
        ]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind, *_):
        self._end.set()
        for thread in self._threads:
            thread.join(MOST_SECONDS)
        assert kind or not any(thread.is_alive() for thread in self._threads), (
            "a client waits for ever"
        )

    def await_answers(self, count):
        """Wait for so many more outcomes."""
        most = len(self.outcomes) + count
        wait_until(lambda: len(self.outcomes) >= most, f"{count} answers")

    def check_all_answered(self):
        """Fail unless each request was answered rightly."""
        bad = [it for it in self.outcomes if it.status != 200 or it.what]
        assert not bad, f"{len(bad)} of {len(self.outcomes)} requests: {bad[:3]}"
        assert self.outcomes, "nobody asked"

    def _ask(self, draw):
        with closing(
            http.client.HTTPConnection("127.0.0.1", self._served.port, timeout=MOST_SECONDS)
        ) as connection:
            while not self._end.is_set():
                chosen = draw.choices(
                    range(len(self._answers.texts)), k=draw.choice([1, 1, 1, 5, 30])
                )
                body = {
                    "texts": [self._answers.texts[it] for it in chosen],
                    "top_k": 9,
                    "explain": len(chosen) == 5,
                }
                began, status, what = time.monotonic(), 0, ""
                try:
                    connection.request(
                        "POST", "/predict", json.dumps(body), {"Content-Type": "application/json"}
                    )
                    reply = connection.getresponse()
                    content, status = json.loads(reply.read()), reply.status
                    if status == 200:
                        self._answers.check(chosen, content)
                except AssertionError as error:
                    what = str(error)
                except (OSError, http.client.HTTPException, ValueError) as error:
                    what = f"{type(error).__name__}: {error}"
                    connection.close()
                self.outcomes.append(Outcome(began, time.monotonic(), status, what))
                if what and not status:
                    time.sleep(SECONDS_BETWEEN_LOOKS)  # the server has ended
