"""How long a test waits for something that is sure to come: the limit ends a hang, on a busy machine as well.

What must be quick is asserted by counting, not by a clock.
"""

TIME_LIMIT = 300.0  # seconds
