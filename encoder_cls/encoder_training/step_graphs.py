"""CUDA graphs of training steps.

A GPU computes a step of a small model in less time than Python takes to start its operations. A
CUDA graph starts all of them at once
(https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs), always with the same shapes and
in the same memory: so there is one for each shape, to whose place a batch is copied.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

import torch
from torch import Tensor

from encoder_cls.encoder.nested_tensors import list_tensors, map_tensors, on_device

Inputs = TypeVar("Inputs")
Outputs = TypeVar("Outputs")

Shapes = tuple[torch.Size, ...]
"""The shapes of all tensors of some inputs."""

# The maximum number of graphs. A graph takes some megabytes. Inputs of further shapes are computed
# without one.
MAX_GRAPHS = 200


class StepGraphs(Generic[Inputs, Outputs]):
    """Computes a function on a GPU, by a CUDA graph for each shape of its inputs.

    The first inputs of a shape, which may not come again, are computed without a graph; the second
    ones are recorded.

    Args:
        function: of tensors on the device; it uses the same ones in each call, and never waits for
            the device.
    """

    def __init__(self, function: Callable[[Inputs], Outputs], recorder: Recorder) -> None:
        self._function = function
        self._recorder = recorder
        self._seen: set[Shapes] = set()
        self._graphs: dict[Shapes, _StepGraph[Inputs, Outputs]] = {}

    def __call__(self, inputs: Inputs) -> Outputs:
        """Compute the function of tensors in pinned memory; the device has the outputs later."""
        shapes = tuple(tensor.shape for tensor in list_tensors(inputs))

        # Record a graph when a shape comes for the second time.
        has_room = len(self._graphs) < MAX_GRAPHS
        if shapes in self._seen and shapes not in self._graphs and has_room:
            self._graphs[shapes] = _StepGraph(self._function, inputs, self._recorder)
        self._seen.add(shapes)

        if shapes in self._graphs:
            return self._graphs[shapes].compute(inputs)
        return self._function(on_device(inputs, self._recorder.device))

    def clear(self) -> None:
        """Free the memory of graphs."""
        self._graphs = {}


class _StepGraph(Generic[Inputs, Outputs]):
    def __init__(
        self, function: Callable[[Inputs], Outputs], inputs: Inputs, recorder: Recorder
    ) -> None:
        device = recorder.device
        self._inputs = map_tensors(lambda tensor: tensor.to(device, copy=True), inputs)
        self._replay = recorder.record(lambda: function(self._inputs))

    def compute(self, inputs: Inputs) -> Outputs:
        for place, tensor in zip(list_tensors(self._inputs), list_tensors(inputs), strict=True):
            place.copy_(tensor, non_blocking=True)
        outputs = self._replay()

        # Copy the outputs, because the next replay of any graph may overwrite them.
        return map_tensors(Tensor.clone, outputs)


class Recorder:
    """Records CUDA graphs, which share working memory, since they never run at once."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._memory = torch.cuda.graph_pool_handle()

    def record(self, function: Callable[[], Outputs]) -> Callable[[], Outputs]:
        """Record a function without computing it.

        Returns:
            A function that replays it, and returns the outputs, always in the same memory.
        """
        graph = torch.cuda.CUDAGraph()
        self._stream.wait_stream(torch.cuda.current_stream(self.device))

        # Record what this thread starts. Another thread pins memory meanwhile, which a recording of
        # all threads would not allow. The context manager `torch.cuda.graph` is not used, because
        # it waits for the device and gives back all unused memory before each recording.
        with torch.cuda.stream(self._stream), _without_garbage_collection():
            graph.capture_begin(self._memory, capture_error_mode="thread_local")
            try:
                outputs = function()
            finally:
                graph.capture_end()

        torch.cuda.current_stream(self.device).wait_stream(self._stream)

        def replay() -> Outputs:
            graph.replay()
            return outputs

        return replay


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Stop collecting: CUDA refuses to delete a graph while another one is recorded."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
