"""The submit YAML as a JSON Schema, made from the models that read it, with the settings of ``run`` spelled out."""

from __future__ import annotations

from typing import Any

from collector.settings import RunSettings
from orchestrate.config.submit import FILLED_IN, SubmitConfig


def submit_schema() -> dict[str, Any]:
    """Draft 2020-12. Keys that begin with ``_`` are the user's own at the top level, as the loader takes them."""
    schema = SubmitConfig.model_json_schema()
    run = RunSettings.model_json_schema(ref_template="#/$defs/{model}")
    schema["$defs"] |= run.pop("$defs", {})
    for key in FILLED_IN:
        del run["properties"][key]
        run["required"].remove(key)
    schema["$defs"]["Run"] = run
    schema["$defs"]["Benchmark"]["properties"]["run"] = {"$ref": "#/$defs/Run"}
    schema["patternProperties"] = {"^_": {}}
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return schema
