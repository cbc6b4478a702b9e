"""Results in, the picture of the learning curves out."""

from __future__ import annotations

import statistics
from pathlib import Path

from accuracy_benchmark.document import TITLES
from accuracy_benchmark.plan import Plan
from accuracy_benchmark.results import Results
from accuracy_benchmark.spread import found

PANELS = 2  # in a row


def write_curves(plan: Plan, results: Results, path: Path) -> bool:
    """Draw a panel for each data set; nothing is written, and false returned, where there is nothing to draw."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = plan.data_of("curves") if "curves" in plan.parts else []
    curves = {data: _curves(plan, results, data) for data in names}
    if not any(len(points) > 1 for of_data in curves.values() for points in of_data.values()):
        return False
    rows = -(-len(names) // PANELS)
    figure = Figure(figsize=(4.5 * PANELS, 3.2 * rows), layout="constrained", dpi=110)
    FigureCanvasAgg(figure)
    panels = list(figure.subplots(rows, PANELS, squeeze=False).flat)
    for data, axes in zip(names, panels, strict=False):
        for number, (method, points) in enumerate(curves[data].items()):
            if points:
                sizes, means, spreads = zip(*points, strict=True)
                axes.errorbar(sizes, means, spreads, label=TITLES[method], color=f"C{number}", marker="o", capsize=2)
        axes.set(title=data, xscale="log", xlabel="labelled texts", ylabel="accuracy, %")
        ticks = [size for size in plan.sizes("curves", data) if size]
        axes.minorticks_off()
        axes.set_xticks(ticks, [f"{size:,}" for size in ticks])
        axes.grid(visible=True, alpha=0.3)
    for axes in panels[len(names) :]:
        axes.set_axis_off()
    handles, labels = max((axes.get_legend_handles_labels() for axes in panels), key=lambda pair: len(pair[1]))
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None})  # the same bytes from the same results
    return True


def _curves(plan: Plan, results: Results, data: str) -> dict[str, list[tuple[int, float, float]]]:
    """For each method its points: the number of texts, the mean accuracy, the standard deviation over seeds."""
    curves: dict[str, list[tuple[int, float, float]]] = {}
    for method in plan.methods_of("curves"):
        curves[method] = []
        for size in plan.sizes("curves", data):
            accuracies = found(results, plan.over_seeds("curves", data, method, size))
            if accuracies:
                spread = statistics.stdev(accuracies) if len(accuracies) > 1 else 0.0
                curves[method].append((size or plan.num_texts(data), statistics.mean(accuracies), spread))
    return curves
