"""Labels given on the page: killed under load, and on a full disk, none is lost or half written."""

import copy
import csv
import ctypes
import http.client
import json
import re
import signal
import time
from contextlib import closing, suppress
from pathlib import Path
from threading import Thread

from processes import LONGEST, small_disk, with_mounts
from samples import tries
from servers import MAX_SECONDS, PR_SET_PDEATHSIG, wait_until

CLASSES = ("refund", "delivery", "login")
NUM_TEXTS = 400
# Texts that a table must keep as they are.
ODD_TEXTS = ["two\nlines", 'quotes " and, commas', "=1+1", "ünï 😀", "a\r\nb", "'", "long " * 200]


class Client:
    """A page that labels what it is shown, and notes each label that was acknowledged."""

    def __init__(self, address, draw):
        _, _, host, self._token, _ = address.split("/")
        self._port = int(host.partition(":")[2])
        self._draw = draw
        self.acknowledged = {}
        self.refused = []

    def another(self):
        """Another page at the same address."""
        page = copy.copy(self)
        page.acknowledged = {}
        page.refused = []
        return page

    def ask(self, path, fields=None):
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=MAX_SECONDS)
        method = "POST" if fields else "GET"
        headers = {"Content-Type": "application/json"}
        with closing(connection):
            connection.request(method, f"/{self._token}/{path}", json.dumps(fields), headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())

    def label(self, count):
        """Label some texts, until the program is gone."""
        with suppress(OSError, http.client.HTTPException, ValueError):
            _, state = self.ask("state")
            for _ in range(count):
                key = state["text"]["key"]
                name = self._draw.choice(CLASSES)
                fields = {"key": key, "labels": [name], "shown_guess": [], "is_change": False}
                status, response = self.ask("label", fields)
                if status == 200:
                    self.acknowledged[key] = name
                    state = response
                    continue
                self.refused.append((status, response["error"]))
                _, state = self.ask("state")


def start(space, folder, draw):
    """Start the program; returns its process and a client."""

    def end_with_parent():
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    arguments = ["label", folder / "pool.csv", "--labels", ",".join(CLASSES), "--no-browser"]
    arguments += ["--output", folder / "out" / "labels.csv"]
    process = space.fork(arguments, prepare=end_with_parent)
    pattern = re.compile(r"http://127\.0\.0\.1:\d+/\S+/")
    found = wait_until(
        lambda: pattern.search(process.said()), "it listens", seconds=LONGEST, process=process
    )
    return process, Client(found[0], draw)


def write_pool(folder, draw):
    """Write texts, some of them odd, and a folder for the labels."""
    (folder / "out").mkdir(parents=True)
    path = folder / "pool.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "text"])
        for number in range(NUM_TEXTS):
            text = f"{draw.choice(ODD_TEXTS)} number {chr(97 + number % 26)}{number // 26 * 'x'}"
            writer.writerow([number, text])


def rows_of(folder):
    """The rows of the labels, each of which must be whole."""
    content = Path(folder / "out" / "labels.csv").read_bytes()
    lines = content.decode("utf-8")
    rows = list(csv.reader(lines.splitlines(keepends=True), strict=True))
    assert len({len(row) for row in rows}) == 1, "a row is not whole"
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]


def check(folder, acknowledged):
    """Each label that was acknowledged is in the file, once, and as it was given."""
    rows = rows_of(folder)
    keys = [row["key"] for row in rows]
    assert len(keys) == len(set(keys)), "a text was labelled twice"
    labels = {row["key"]: row["label"] for row in rows}
    assert acknowledged.items() <= labels.items(), "an acknowledged label is lost"
    return labels


@tries(60)
def test_label_kill(space, draw, number):
    """Killed at any moment under two pages: every acknowledged label is there, and it goes on."""
    folder = space.scratch / f"label-{number}"
    write_pool(folder, draw)
    acknowledged = {}
    for _ in range(3):
        process, client = start(space, folder, draw)
        pages = [client, client.another()]
        threads = [Thread(target=page.label, args=(NUM_TEXTS,)) for page in pages]
        for thread in threads:
            thread.start()
        time.sleep(draw.uniform(0.0, 0.6))
        process.signal(signal.SIGKILL)
        process.runs_after(LONGEST)
        for thread in threads:
            thread.join()

        for page in pages:
            for status, error in page.refused:
                assert status == 409, error
            acknowledged |= page.acknowledged
        check(folder, acknowledged)

    # It continues with what is there, and asks nothing again.
    process, client = start(space, folder, draw)
    _, state = client.ask("state")
    assert state["num_labelled"] == len(rows_of(folder))
    client.label(5)
    process.signal(signal.SIGTERM)
    process.end().check()
    assert len(client.acknowledged) == 5
    check(folder, acknowledged | client.acknowledged)


@tries(20)
def test_label_full_disk(space, draw, number):
    """Too little room: a label is refused with the reason, and no other label suffers."""
    folder = space.scratch / f"label-{number}"
    write_pool(folder, draw)

    def labelling():
        process, client = start(space, folder, draw)
        client.label(NUM_TEXTS)
        process.signal(signal.SIGTERM)
        process.end().check()
        assert client.refused, "the disk is not full"
        for status, error in client.refused:
            assert (status, "No space left" in error) == (507, True), error
        labels = check(folder, client.acknowledged)
        assert labels == client.acknowledged

    with_mounts([small_disk(folder / "out", 4 * (3 + number % 10))], labelling)
