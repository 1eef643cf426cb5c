"""The metrics of NeMo Gym 0.7.0, computed by its own functions behind its own kind of server. Runs in its environment.

<environment>/bin/python bench/metrics_server.py --port 11001
"""

from __future__ import annotations

import argparse
import json

import uvicorn
from fastapi import FastAPI
from head_config import head_config
from nemo_gym.base_resources_server import AggregateMetrics, AggregateMetricsRequest
from nemo_gym.reward_profile import AggregateMetricsMixin, compute_aggregate_metrics


def application(port: int) -> FastAPI:
    """The two addresses that an aggregation asks: the head's configuration, and the metrics of the rows that it sends."""
    app, metrics = FastAPI(), AggregateMetricsMixin()

    @app.get("/global_config_dict_yaml")
    async def config() -> str:
        return json.dumps(head_config(port))

    @app.post("/aggregate_metrics", response_model=AggregateMetrics)
    async def aggregate(body: AggregateMetricsRequest) -> AggregateMetrics:
        return compute_aggregate_metrics(
            body.verify_responses,
            compute_metrics_fn=metrics.compute_metrics,
            get_key_metrics_fn=metrics.get_key_metrics,
            compute_repeat_metrics_fn=metrics.compute_repeat_metrics,
        )

    return app


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    chosen: int = parser.parse_args().port
    uvicorn.run(application(chosen), host="127.0.0.1", port=chosen, http="httptools", log_level="warning")
