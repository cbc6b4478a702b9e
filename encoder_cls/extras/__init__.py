"""Annexes: programs on the public API of encoder_cls, each whole in a folder of its own.

An annex imports `encoder_cls`, `encoder_cls.errors` and `encoder_cls.system`, nothing else of the
core. The core finds annexes by their folder (`system/annexes`), and knows none by name.
"""
