"""What a head server tells NeMo Gym's programs: one agent, one environment and one model, all behind one port."""

from __future__ import annotations

from typing import Any


def head_config(port: int) -> dict[str, Any]:
    """The configuration that NeMo Gym's collector asks a head server for: one agent behind one environment server."""
    here = {"host": "127.0.0.1", "port": port, "entrypoint": "app.py"}
    model = {"type": "responses_api_models", "name": "policy_model"}
    resources = {"type": "resources_servers", "name": "bench_resources"}
    agent = {"type": "responses_api_agents", "name": "bench_agent"}
    return {
        "bench_resources": {"resources_servers": {"bench_resources": {**here, "domain": "math", "name": "bench_resources"}}},
        "policy_model": {"responses_api_models": {"openai_model": {**here, "name": "policy_model"}}},
        "bench_agent": {
            "responses_api_agents": {
                "simple_agent": {**here, "name": "bench_agent", "resources_server": resources, "model_server": model}
            }
        },
        "bench_env": {"environment_servers": {"legacy_agent": {**here, "name": "bench_env", "agent_server": agent}}},
        "head_server": {"host": "127.0.0.1", "port": port},
    }
