"""Train a Transformer-encoder text classifier from scratch on your own labelled text.

>>> from encoder_cls import load_classifier
>>> classifier = load_classifier("runs/example")
>>> classifier.predict(["where is my parcel?"])[0].label
'track_order'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from encoder_cls.inference.classifier import Classifier, Prediction
    from encoder_cls.inference.predictor import Predictor
    from encoder_cls.inference.serialization import load_classifier

__version__ = "0.1.0"
__all__ = ["Classifier", "Prediction", "Predictor", "__version__", "load_classifier"]


def __getattr__(name: str) -> Any:
    """Load the library part on first use, so that `import encoder_cls` does not wait for torch."""
    if name in {"Classifier", "Prediction", "load_classifier"}:
        from encoder_cls.inference import classifier, serialization

        return getattr(serialization if name == "load_classifier" else classifier, name)
    if name == "Predictor":
        from encoder_cls.inference.predictor import Predictor

        return Predictor
    raise AttributeError(f"module 'encoder_cls' has no attribute {name!r}")
