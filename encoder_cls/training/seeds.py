"""Seeds of random numbers, each a function of the run's seed and of what it is for."""

from __future__ import annotations

import numpy as np


def derive_seed(*numbers: int) -> int:
    """One seed made of several numbers; of 32 bits, since torch's CPU generator looks at no more of its seed."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])
