"""The command line of a service: what the user wrote, ``vllm serve``, and ``srun`` around either for a container. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from orchestrate.config.services import CommandService, StartedService, VllmService


def model_name(service: CommandService | VllmService) -> str:
    """The name under which the service answers; empty when it serves no model."""
    if isinstance(service, VllmService):
        return service.served_model_name or service.model
    return service.served_model_name or ""


def command_of(
    service: CommandService | VllmService, *, name: str, job: str, variables: Iterable[str] = (), step: Sequence[str] = ()
) -> list[str]:
    """The command with ``{port}`` and ``{host}`` still to be filled in; ``variables`` are those that reach a container.

    ``step`` is the srun of another node, which a container's options are added to.
    """
    if isinstance(service, VllmService):
        plain = _vllm(service)
    elif isinstance(service.command, str):
        plain = ["bash", "-c", service.command]
    else:
        plain = list(service.command)
    return (
        plain
        if service.container is None
        else [*_srun(service, service.container, f"gym-{name}-{job}", variables=sorted(variables), step=step), *plain]
    )


def _vllm(service: VllmService) -> list[str]:
    command = ["vllm", "serve", service.model, "--host", "{host}", "--port", "{port}"]
    command += ["--served-model-name", model_name(service)]
    command += ["--tensor-parallel-size", str(service.tensor_parallel_size)]
    command += ["--pipeline-parallel-size", str(service.pipeline_parallel_size)]
    if service.trust_remote_code:
        command.append("--trust-remote-code")
    return [*command, *service.extra_args]


def _srun(service: StartedService, image: str, container: str, *, variables: list[str], step: Sequence[str]) -> list[str]:
    command = container_step(image, service.mounts, name=container, variables=variables, step=step)
    if service.cwd is not None:
        command.append(f"--container-workdir={service.cwd}")
    return command


def container_step(
    image: str, mounts: Sequence[str], *, name: str, variables: Sequence[str], step: Sequence[str] = ()
) -> list[str]:
    """The srun that starts what follows it in a container called ``name``, which no other on the node may be."""
    # --overlap: the step shares the GPUs and cores that the job's own process holds.
    command = [*(step or ("srun", "--overlap", "--nodes=1", "--ntasks=1")), f"--container-image={image}"]
    command += [f"--container-name={name}", "--no-container-mount-home"]
    if mounts:
        command.append(f"--container-mounts={','.join(mounts)}")
    if variables:
        # Names only: values travel in the environment, where no process list shows them.
        command.append(f"--container-env={','.join(variables)}")
    return command
