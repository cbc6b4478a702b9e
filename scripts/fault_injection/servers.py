"""A server that is tried, clients that ask it honestly, and whether each of them got what was promised."""

from __future__ import annotations

import ctypes
import http.client
import json
import random
import re
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import Any

from processes import LONGEST, Process, fork
from samples import FILLERS, TOPICS, Workspace

from encoder_cls.inference.folder import load_classifier
from encoder_cls.inference.json_record import json_record

WORDS = " ".join(TOPICS.values()).split() + FILLERS
TOLERANCE = 1e-5  # of a probability: which texts share a batch changes the last digits
MOST_SECONDS = 30.0  # for an answer
SECONDS_BETWEEN_LOOKS = 0.01
PR_SET_PDEATHSIG = 1  # of Linux's prctl


@dataclass(frozen=True)
class Served:
    """A server that listens."""

    process: Process
    port: int

    def get(self, path: str) -> tuple[int, str]:
        """What a path answers."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=MOST_SECONDS)) as connection:
            connection.request("GET", path)
            reply = connection.getresponse()
            return reply.status, reply.read().decode()

    def await_line(self, pattern: str, *, count: int = 1) -> None:
        """Wait until it has said something so many times."""
        deadline = time.monotonic() + MOST_SECONDS
        while len(re.findall(pattern, self.process.said())) < count:
            assert time.monotonic() < deadline, f"it never said {pattern!r} {count} times: {self.process.said()}"
            assert self.process.wait(0) is None, f"it ended: {self.process.said()}"
            time.sleep(SECONDS_BETWEEN_LOOKS)

    def own_bytes(self) -> int:
        """The memory that is its own: neither shared with who started it, nor of files."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"RssAnon:\s+(\d+) kB", status)[0]) * 1024


def serve(space: Workspace, run: Path, *, port: int = 0, prepare: Callable[[], object] = lambda: None) -> Served:
    """A server of a run, once it listens.

    Args:
        space: where it is started.
        run: a run or model folder.
        port: of this machine; 0: a free one.
        prepare: called in its process first.
    """

    def end_with_parent() -> None:  # also where a try fails, which stops no server
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        prepare()

    process = fork(["serve", run, "--port", str(port)], cwd=space.folder, prepare=end_with_parent)
    deadline = time.monotonic() + LONGEST
    while not (found := re.search(r" on http://127\.0\.0\.1:(\d+); ", process.said())):
        assert process.wait(0) is None, f"it does not serve: {process.said()}"
        assert time.monotonic() < deadline, f"it never listens: {process.said()}"
        time.sleep(SECONDS_BETWEEN_LOOKS)
    return Served(process, int(found[1]))


class Answers:
    """What models answer to some texts, by the SHA-256 of the model.

    Args:
        draw: chooses the texts.
    """

    def __init__(self, draw: random.Random) -> None:
        self.texts = [" ".join(draw.choices(WORDS, k=draw.choice([0, 1, 3, 9, 40]))) for _ in range(20)]
        self._known: dict[str, list[dict[str, Any]]] = {}

    def learn(self, folder: Path) -> str:
        """Add those of the model that is in a folder; its SHA-256."""
        classifier = load_classifier(folder, engine="numpy")
        self._known[classifier.sha256] = [
            json_record(it, top_k=9, threshold=0.0, words=None) for it in classifier.predict(self.texts)
        ]
        return classifier.sha256

    def check(self, chosen: Sequence[int], reply: Any) -> None:
        """Fail unless a reply is what one model answers to some of the texts."""
        assert reply.keys() == {"predictions", "model"}, reply
        assert reply["model"] in self._known, f"no model that was there has the hash {reply['model']}"
        assert len(reply["predictions"]) == len(chosen), f"{len(reply['predictions'])} answers to {len(chosen)} texts"
        for number, found in zip(chosen, reply["predictions"], strict=True):
            expected = self._known[reply["model"]][number]
            assert found.keys() >= expected.keys(), found
            assert found["truncated"] == expected["truncated"], found
            probabilities, known = ({it["label"]: it["probability"] for it in one["top"]} for one in (found, expected))
            assert probabilities.keys() == known.keys(), found
            far = [label for label in known if abs(known[label] - probabilities[label]) > TOLERANCE]
            assert not far, f"the model {reply['model'][:12]} never said {found} to {self.texts[number]!r}"


@dataclass(frozen=True)
class Outcome:
    """What became of an honest request.

    Attributes:
        began: when it was sent, by the clock of `time.monotonic`.
        seconds: until its outcome was known.
        status: of the answer; 0 where none came.
        what: the error that came, or what is wrong with the answer; empty where all is well.
    """

    began: float
    seconds: float
    status: int
    what: str


class Load:
    """Clients that ask, each one request after the other, while a block runs.

    Args:
        served: whom.
        answers: to which texts, and what is right.
        draw: chooses them.
        clients: how many at once.
    """

    def __init__(self, served: Served, answers: Answers, draw: random.Random, *, clients: int) -> None:
        self.outcomes: list[Outcome] = []
        self._served, self._answers = served, answers
        self._end = Event()
        seeds = [draw.random() for _ in range(clients)]
        self._threads = [Thread(target=self._ask, args=(random.Random(seed),), daemon=True) for seed in seeds]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(MOST_SECONDS)
        assert kind or not any(thread.is_alive() for thread in self._threads), "a client waits for ever"

    def await_answers(self, count: int) -> None:
        """Wait until so many requests have been answered."""
        deadline = time.monotonic() + MOST_SECONDS
        while len(self.outcomes) < count:
            assert time.monotonic() < deadline, f"{len(self.outcomes)} answers in {MOST_SECONDS:.0f} s"
            time.sleep(SECONDS_BETWEEN_LOOKS)

    def check_all_answered(self) -> None:
        """Fail unless each request was answered rightly."""
        bad = [it for it in self.outcomes if it.status != 200 or it.what]
        assert not bad, f"{len(bad)} of {len(self.outcomes)} requests: {bad[:3]}"
        assert self.outcomes, "nobody asked"

    def _ask(self, draw: random.Random) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._served.port, timeout=MOST_SECONDS)
        with closing(connection):
            while not self._end.is_set():
                chosen = draw.choices(range(len(self._answers.texts)), k=draw.choice([1, 1, 1, 5, 30]))
                body = {"texts": [self._answers.texts[it] for it in chosen], "top_k": 9}
                body |= {"explain": True} if len(chosen) == 5 else {}
                began, status, what = time.monotonic(), 0, ""
                try:
                    connection.request("POST", "/predict", json.dumps(body), {"Content-Type": "application/json"})
                    reply = connection.getresponse()
                    content = json.loads(reply.read())
                    status = reply.status
                    if status == 200:
                        self._answers.check(chosen, content)
                except AssertionError as error:
                    what = str(error)
                except (OSError, http.client.HTTPException, ValueError) as error:
                    what = f"{type(error).__name__}: {error}"
                    connection.close()
                self.outcomes.append(Outcome(began, time.monotonic() - began, status, what))
                if what and not status:
                    time.sleep(SECONDS_BETWEEN_LOOKS)  # nobody listens any more
