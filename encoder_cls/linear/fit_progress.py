"""How much of the work of a fit is done, for people who wait for its end."""

from __future__ import annotations

import time
from collections.abc import Callable


class FitProgress:
    """Counts the work of a fit, and reports the share that is done.

    The unit of work is one text that one machine learns from. A fit says how much work it expects
    before it begins, and then counts each piece of work that is done.

    Args:
        report: receives the share of the work that is done, from 0 to 1; None if nobody waits.
        end: when the fit must end, a time of `time.monotonic`; None without a limit. A fit with a
            limit is done at the end of its time, whatever work is left.
    """

    def __init__(
        self, report: Callable[[float], None] | None = None, *, end: float | None = None
    ) -> None:
        self._report = report
        self._end = end
        self._began = time.monotonic()
        self._expected = 0.0
        self._has_all = False
        self._done = 0.0

    def expect(self, work: float) -> None:
        """Add work that is still to be done."""
        if self._report and not self._has_all:
            self._expected += work

    def expect_no_more(self) -> None:
        """Say that all work is expected by now: parts of the fit add none by `expect`."""
        if self._report:
            self._has_all = True

    def part(self, work: float) -> FitProgress:
        """Expect a part of the fit that counts in units of its own, and return its progress.

        The whole part is this much work of the fit. The share of it that is done counts as done
        here, too.
        """
        self.expect(work)
        if self._report is None:
            return UNREPORTED
        done = 0.0

        def add_share(share: float) -> None:
            nonlocal done
            self.add(share * work - done)
            done = share * work

        return FitProgress(add_share)

    def add(self, work: float) -> None:
        """Count work that is done, and report the share of all expected work."""
        if self._report is None:
            return
        self._done += work

        share = 0.0
        if self._expected:
            share = self._done / self._expected
        if self._end is not None:
            now = time.monotonic()
            seconds = max(self._end - self._began, now - self._began)
            share = max(share, (now - self._began) / seconds)
        self._report(min(share, 1.0))


# The progress of a fit for which nobody waits.
UNREPORTED = FitProgress()

# The work of counting the features of a text, in machines that learn from the text: between 2 and 4
# on texts of 10 to 45 words.
COUNTING_WORK = 3.0
