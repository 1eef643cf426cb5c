"""The program ``gym``: finds the command, runs it, and turns an error into one line and an exit code."""

from __future__ import annotations

import sys

from orchestrate.cli.interrupt import Interrupts, code_of_interrupt, is_of_interrupt
from orchestrate.cli.outputs import make_outputs_take_all

#: typing takes longer to import than --help may last; type checkers take this name for theirs.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class CommandModule(Protocol):
        """What a command's module offers."""

        def main(self, argv: list[str]) -> int:
            """Run the command with the arguments after its name and return the exit code."""
            ...


#: Command to what it is for. Its module ``orchestrate.cli.<name>`` is imported only when it is used.
EVAL = {
    "init": "write a first YAML file",
    "doctor": "check this machine, the cluster and the storage",
    "submit": "turn a YAML file into jobs",
    "run": "collect one benchmark here and now",
    "status": "show how far a submitted run is",
    "watch": "show the status of a run until it is over",
    "logs": "show what jobs and services wrote",
    "list": "list the runs that were submitted from here",
    "why": "explain one rollout over its attempts",
    "cancel": "stop the jobs of a run; nothing recorded is lost",
    "resubmit": "run again what a run left unfinished",
    "unlock": "say who holds a lock, and free it when its owner is gone",
    "clean": "remove what finished jobs left",
    "reverify": "grade saved answers again; no model is asked for new ones",
    "aggregate": "merge shards into one file with coverage and metrics",
    "merge": "merge shards, or check a merged file against them",
    "compare": "compare runs of one dataset, and guard a score",
    "health-check": "check saved rows: empty answers, failed calls and the like",
    "report": "make one HTML page of a run: scores, coverage, failures",
    "export": "send a finished run to a tracker, a table or a folder",
    "schema": "print the JSON Schema of the submit YAML",
}


#: Commands of NeMo Gym that are not here: both programs are called ``gym``, and one hides the other on a PATH.
_NEMO_GYM = frozenset({"env", "dataset", "eval prepare", "eval profile"})


#: Commands that calculate and start no program of anybody's, those that do start some, and of them those that load at once what
#: they calculate with.
_READERS = frozenset({"aggregate", "merge", "compare", "health-check", "report", "export", "init"})
_STARTERS = frozenset({"run", "reverify", "submit", "resubmit"})
_AT_ONCE = frozenset({"reverify", "submit", "resubmit"})

#: What errors of several problems are laid out with.
_LAYOUT = "\n\t"

INTERRUPTS = Interrupts()


def main(argv: list[str] | None = None) -> int:
    """Entry point of ``gym`` and ``gym-eval``; returns the exit code."""
    make_outputs_take_all()
    try:
        with INTERRUPTS:
            return _told(sys.argv[1:] if argv is None else argv)
    except KeyboardInterrupt:
        # While the program still started, or was about to end: there is nothing to tell.
        return code_of_interrupt()
    except OSError as error:
        # What is printed without a command, help say, on an output that does not take it.
        return _end_without_output("gym", error)


def _told(arguments: list[str]) -> int:
    try:
        code = _gym(arguments)
    except SystemExit:
        # argparse ends this way when it has printed help.
        _flush()
        raise
    _flush()
    return code


def _gym(arguments: list[str]) -> int:
    if arguments in ([], ["-h"], ["--help"]):
        print("usage: gym [--version] eval COMMAND ...\n\nMeasure a model: see 'gym eval --help'.")
        return 0
    if arguments == ["--version"]:
        from orchestrate.version import package_version

        print(f"gym-eval {package_version()}")
        return 0
    if arguments[0] != "eval":
        return _unknown("gym", arguments[0], ["eval"])
    return _eval(arguments[1:])


def _eval(arguments: list[str]) -> int:
    if arguments in ([], ["-h"], ["--help"]):
        width = max(map(len, EVAL))
        lines = "\n".join(f"  {name:<{width}}  {summary}" for name, summary in EVAL.items())
        print(f"usage: gym eval COMMAND ...\n\ncommands:\n{lines}\n\nEach has --help.")
        return 0
    if arguments[0] not in EVAL:
        return _unknown("gym eval", arguments[0], list(EVAL))
    return _run(arguments[0], arguments[1:])


def _run(name: str, arguments: list[str]) -> int:
    INTERRUPTS.told = f"gym eval {name}: interrupted\n"
    from importlib import import_module

    from collector.errors import GymEvalError

    try:
        if name in _READERS | _STARTERS and not {"-h", "--help"} & set(arguments) and not _may_calculate(name):
            return 5
        module: CommandModule = import_module(f"orchestrate.cli.{name.replace('-', '_')}")  # pyright: ignore[reportAssignmentType] - a module
        code = module.main(arguments)
        _flush()
    except GymEvalError as error:
        from collector.text.visible import visible

        print(f"gym eval {name}: {visible(str(error), kept=_LAYOUT)}", file=sys.stderr)
        return error.exit_code
    except (MemoryError, ImportError) as error:
        from orchestrate.cli.machine_limits import NO_MEMORY, is_of_memory

        if not is_of_memory(error):
            raise
        print(f"gym eval {name}: {NO_MEMORY}", file=sys.stderr)
        code = 5
    except OSError as error:
        return _end_without_storage(f"gym eval {name}", error)
    except EOFError:
        print(f"gym eval {name}: the input ended before every question was answered", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, Exception) as error:
        if not is_of_interrupt(error):
            raise
        print(INTERRUPTS.told, end="", file=sys.stderr)
        return code_of_interrupt()
    return code


def _may_calculate(name: str) -> bool:
    """Prepare this process for libraries that calculate; False, and said in a line, where they have no room."""
    from importlib import import_module

    from orchestrate.cli.machine_limits import (
        NO_MEMORY,
        is_too_small_for_matrices,
        leave_linear_algebra_alone,
        one_thread_for_matrices,
    )

    if is_too_small_for_matrices():
        print(f"gym eval {name}: {NO_MEMORY}", file=sys.stderr)
        return False
    if name in _READERS:
        leave_linear_algebra_alone()
    elif name in _AT_ONCE:
        with one_thread_for_matrices():
            # What comes next would load it.
            import_module("numpy")
    return True


def _flush() -> None:
    # Unlike a flush of its own, it does nothing where there is no standard output.
    print(end="", flush=True)


def _end_without_storage(program: str, error: OSError) -> int:
    """The exit code of what a disk or its owner refuses, said in a line. Raises ``error`` for a bug of ours."""
    if (told := _storage_problem(error)) is None:
        return _end_without_output(program, error)
    print(f"{program}: {told}", file=sys.stderr)
    from collector.errors import kind_of

    return kind_of(error).exit_code


def _end_without_output(program: str, error: OSError) -> int:
    """The exit code where standard output takes nothing more, said in a line. Raises ``error`` for anything else."""
    from errno import EDQUOT, EFBIG, EIO, ENOSPC

    if error.errno not in {EDQUOT, EFBIG, EIO, ENOSPC} and not isinstance(error, BrokenPipeError):
        raise error
    # What is buffered must not be tried again at exit, which would end with a code and words of Python's own.
    sys.stdout = None  # pyright: ignore[reportAttributeAccessIssue] - what Python itself has for a program without one
    if isinstance(error, BrokenPipeError):
        # The reader of our output, such as head, has seen enough.
        return 141
    # Every file that is written has a name in its error; the output alone has none.
    print(f"{program}: the output: {(error.strerror or str(error)).lower()}. Make room, or send it elsewhere.", file=sys.stderr)
    return 5


def _storage_problem(error: OSError) -> str | None:
    """One line for what a disk or its owner refuses; None for an error that names no file, which is a bug of ours."""
    if isinstance(error, FileNotFoundError) and error.filename is None:
        # Of all that is asked of the system without a name, only where we are can be missing.
        return "the current directory is there no more. Change to another one."
    if error.filename is None or error.strerror is None:
        return None
    return (
        f"{_target_of(str(error.filename))}: {error.strerror[0].lower()}{error.strerror[1:]}. Mend that, or name another path."
    )


def _target_of(name: str) -> str:
    from collector.durable import asked_for

    return asked_for(name)


def _unknown(program: str, name: str, choices: list[str]) -> int:
    import difflib

    near = difflib.get_close_matches(name, choices, n=1)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    if program == "gym" and name in EVAL:
        hint = f"Did you mean 'gym eval {name}'? "
    if (command := f"{program} {name}".removeprefix("gym ")) in _NEMO_GYM:
        hint = f"'gym {command}' is a command of NeMo Gym: name that program by its path (this one is gym-eval, too). "
    print(f"{program}: unknown command {name!r}. {hint}Choose from: {', '.join(choices)}.", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
