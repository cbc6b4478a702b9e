"""Export a classifier as one JavaScript module.

The modules of `engine/` are joined to one text: an export is a single file, and needs no build
step.
"""

from __future__ import annotations

import base64
import re
from functools import lru_cache
from importlib.resources import files

from encoder_cls.extras.export.character_tables import character_tables
from encoder_cls.extras.export.model_file import ExportedModel
from encoder_cls.system.display import printable
from encoder_cls.system.json_values import json_text

# The modules of the engine; each imports only modules that are listed before it.
MODULES = (
    "characters",
    "tokenizer",
    "rows",
    "words",
    "weights",
    "features",
    "linear",
    "matrices",
    "layers",
    "encoder",
    "probabilities",
    "familiarity",
    "guarantees",
    "explanation",
    "codes",
    "classifier",
)

_ENGINE = files(__package__) / "engine"
_IMPORT = re.compile(r'^import \{[^}]*\} from "\./\w+\.mjs";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export ", re.MULTILINE)

_LOAD = """\
let loaded;

// Returns the classifier. The model is unpacked at the first call.
export async function load() {
  loaded ??= new Classifier(bytesOfBase64(MODEL), CHARACTERS);
  return loaded;
}
"""


def javascript_module(model: ExportedModel) -> str:
    """Write a model as an ES module, which exports `load`."""
    names = printable(", ".join(model.classifier.label_names))
    part = ", its linear part alone" if model.is_linear_part else ""
    parts = [
        f"// A text classifier of encoder-cls: {names}\n",
        f"// Model {model.classifier.sha256}{part}\n",
        "//\n",
        '//   import { load } from "./FILE.mjs";\n',
        "//   const classifier = await load();\n",
        '//   classifier.predict(["a text"], { topK: 3 });\n\n',
        engine(),
        f"\nconst CHARACTERS = {json_text(character_tables())};\n",
        f'const MODEL = "{base64.b64encode(model.content).decode()}";\n',
        _LOAD,
    ]
    return "".join(parts)


@lru_cache(maxsize=1)
def engine() -> str:
    """The modules of the engine as one text without imports and exports."""
    joined = []
    for name in MODULES:
        source = _ENGINE.joinpath(f"{name}.mjs").read_text(encoding="utf-8")
        joined.append(_EXPORT.sub("", _IMPORT.sub("", source)))
    return "\n".join(joined)
