"""The commands behind the Makefile. Each starts from a bare clone, may be repeated, and leaves no process behind."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from deploy.stack import checks, demo, environment, faults, paths, planted, pool_check, process, setup, stacks, suite, tools, venv
from deploy.stack.errors import Interrupted, StackError
from deploy.stack.paths import ENV_FILE, KEPT_KINDS, KINDS, Layout
from deploy.stack.services import monitoring
from deploy.stack.spent import Spent
from deploy.stack.stacks import Stack
from deploy.stack.steps import beside, cancel, say, seconds_since_start
from deploy.stack.supervisor import Supervisor, holder, interruptible

VERIFY_SECONDS = 1800.0
STOP_SECONDS = 180.0
#: Everything that is installed from locks: WMS2, its tests and demo, the demo's Rucio server.
LOCKS = (
    *(f"requirements/{name}.txt" for name in ("pip", "runtime", "dev")),
    *(f"deploy/rucio/{name}.txt" for name in ("requirements-pip", "requirements")),
)
#: The second run shows that the first left nothing that disturbs.
FAULT_RUNS = 2


def command_setup(layout: Layout) -> int:
    """Install all: the Python environment, HTCondor, Rucio and XRootD servers, the tests' browser, nginx and Prometheus."""
    setup.run_all(layout, tests=True)
    say(f"set up; state in {layout.state_root}, tools in {layout.tools}")
    return 0


@contextmanager
def _stack(layout: Layout, kind: str, *, tests: bool = False) -> Iterator[tuple[Stack, Supervisor]]:
    """A stack of this kind, described but not started; all that is started in the block is stopped at its end."""
    setup.run_all(layout, tests=tests)
    directory = layout.kind(kind)
    with Supervisor(directory, say) as supervisor:
        if kind not in KEPT_KINDS:
            stacks.empty(directory)
        yield stacks.assemble(layout, kind), supervisor
    say("everything is stopped")


def command_demo(layout: Layout) -> int:
    """Start everything, import the demo's requests (or REQUEST=file.json), show their progress until Ctrl-C.

    MONITORING=1 starts Prometheus and Alertmanager beside it.
    """
    with _stack(layout, "demo") as (stack, supervisor):
        password = demo.start(stack, supervisor)
        if monitoring.wanted():
            demo.start_monitoring(stack, supervisor)
        demo.announce(stack, password)
        demo.furnish_examples(stack)
        code = stacks.run_attended(stack, supervisor, "deploy.demo.follow")  # which ends by an interruption alone
    raise StackError(f"the progress display ended with code {code}")


def command_demo_check(layout: Layout) -> int:
    """Run the demo from an empty state, verify what it made, stop everything."""
    with _stack(layout, "check") as (stack, supervisor):
        demo.start(stack, supervisor)
        say(f"running after {seconds_since_start():.0f} s")
        code = demo.verify(stack, supervisor, VERIFY_SECONDS)
        say("verified" if code == 0 else f"the verification failed (code {code}); logs in {stack.directory}/logs")
    return code


def command_test(layout: Layout) -> int:
    """Start two stacks from an empty state, run pytest on both (ARGS="..." are its arguments), stop everything.

    Without arguments all run that are not `deep`: on one stack those that share it, side by side; on the other, at the same time,
    those that take a server away from all others. With arguments there is one stack.
    """
    return _tests(layout, deep=False)


def command_test_long(layout: Layout) -> int:
    """The same with what `make test` leaves out."""
    return _tests(layout, deep=True)


def command_test_apart(layout: Layout) -> int:
    """The second stack of `test`, or of `test-long` where ARGS="deep"."""
    with _test_stack(layout, "apart") as (_, run_parts):
        return run_parts(suite.apart(layout.source, deep=_arguments() == ["deep"]), {})


def _tests(layout: Layout, *, deep: bool) -> int:
    arguments = _arguments()
    if arguments:
        with _test_stack(layout) as (_, run_parts):
            return run_parts({"tests": arguments}, {})
    log = layout.state_root / "apart.log"
    with _test_stack(layout, all_tests=True) as (_, run_parts), log.open("wb") as said:
        argv = (sys.executable, "-m", "deploy.stack", "test-apart")
        own = {**os.environ, "ARGS": "deep" if deep else ""}
        with process.attached(argv, environment=own, cwd=layout.source, stop_signal=signal.SIGINT, output=said) as apart:
            codes = [run_parts(suite.together(deep=deep), {})]
            say("waiting for the tests of the other stack")
            codes.append(apart.wait())
        say(f"the tests of the other stack ended with code {codes[-1]}:")
        sys.stdout.write(log.read_text(errors="replace"))
    return suite.outcome(codes)


def command_contract(layout: Layout) -> int:
    """Run the adapters against the servers that DBS_URL, RUCIO_URL and REQMGR2_URL name; without any, on the test stack."""
    tests = ["tests/contract", *_arguments()]
    if not any(os.environ.get(f"WMS2_CONTRACT_{name}_URL") for name in ("DBS", "RUCIO", "REQMGR2")):
        with _test_stack(layout) as (_, run_parts):
            return run_parts({"contract": tests}, {})
    layout.state_root.mkdir(parents=True, exist_ok=True)
    venv.ensure(layout)
    settings = {**os.environ, "DJANGO_SETTINGS_MODULE": "wms2.check_settings"}
    argv = [str(layout.python), "-m", "pytest", "-p", "no:cacheprovider", *tests]
    return subprocess.run(argv, cwd=layout.source, env=settings, check=False).returncode


def command_faults(layout: Layout) -> int:
    """Run the fault catalogue twice in a row on one test stack (ARGS="..." narrows it) and print what each fault led to."""
    with _test_stack(layout) as (stack, run_parts):
        reports = [stack.directory / f"faults.{run}.jsonl" for run in range(1, FAULT_RUNS + 1)]
        parts = suite.catalogue(_arguments())
        codes = [run_parts(parts, {faults.REPORT_VARIABLE: str(report)}) for report in reports]
    entries = faults.read_entries(reports)
    for line in faults.table(entries, FAULT_RUNS):
        print(line)
    return next((code for code in codes if code), 0) or int(not all(entry.holds for entry in entries))


def command_planted(layout: Layout) -> int:
    """Plant each fault of tests/planted into a copy of the checkout and run the tests that must find it."""
    with _stack(layout, "test", tests=True) as (stack, supervisor):
        stacks.start_backends(stack, supervisor)
        outcomes = planted.run_all(stack)
    for line in planted.table(outcomes):
        print(line)
    return int(any(outcome.problem for outcome in outcomes))


Parts = Mapping[str, Sequence[str]]
RunParts = Callable[[Parts, Mapping[str, str]], int]


@contextmanager
def _test_stack(layout: Layout, kind: str = "test", *, all_tests: bool = False) -> Iterator[tuple[Stack, RunParts]]:
    """The running stack for tests; and what runs pytest on it, once for each part, whatever becomes of the others.

    The first exit code that tells of a failure is the outcome. For a run of ``all_tests`` what its processes share is made first.
    """
    spent = Spent()
    with _stack(layout, kind, tests=True) as (stack, supervisor):
        places = ("-o", f"cache_dir={layout.state_root}/cache/pytest-{kind}", f"--basetemp={stack.directory}/pytest")
        with spent.part("start"), beside(*([lambda: stack.python("tests-compile", "-m", *suite.COMPILE)] if all_tests else ())):
            stacks.start_backends(stack, supervisor)
            say(f"test stack running after {seconds_since_start():.0f} s")
            if all_tests:
                stack.python("tests-template", "-m", *suite.TEMPLATE)
        settings = {
            "WMS2_TEST_COSTS": str(layout.state_root / "costs"),
            "HYPOTHESIS_STORAGE_DIRECTORY": str(layout.state_root / "cache/hypothesis"),
            "WMS2_TOOLS_DIR": str(layout.tools),  # where this stack's own tools lie
            tools.BROWSER_VARIABLE: str(tools.browser(layout)),
        }

        def run_parts(parts: Parts, more: Mapping[str, str]) -> int:
            codes = []
            for name, part in parts.items():  # SIGINT: pytest ends its fixtures and says how far it came
                argv = ("pytest", *places, *part)
                with spent.part(name):
                    run = stacks.run_attended(stack, supervisor, *argv, settings={**settings, **more}, stop_signal=signal.SIGINT)
                codes.append(run)
            for line in spent.table():
                say(line)
            return suite.outcome(codes)

        yield stack, run_parts


def command_bench(layout: Layout) -> int:
    """Measure on a stack of its own, from an empty state (ARGS="..." names measurements), stop everything."""
    with _stack(layout, "bench") as (stack, supervisor):
        demo.start_doors(stack, supervisor)
        stack.wms2.manage("wms2_init")
        if "adaptive" in _arguments():  # nothing else may run beside what others measure
            stacks.start_engine(stack, supervisor)
        browser = {tools.BROWSER_VARIABLE: str(tools.browser(layout))}
        return stacks.run_attended(stack, supervisor, "bench", *_arguments(), settings=browser)


def _arguments(default: str = "") -> list[str]:
    """What the person gave in ARGS."""
    return shlex.split(os.environ.get("ARGS", default))


def command_check(layout: Layout) -> int:
    """Static checks: ruff, mypy, import contracts, migrations, deployment settings."""
    layout.state_root.mkdir(parents=True, exist_ok=True)
    venv.ensure(layout)
    return checks.run_all(layout)


def command_audit(layout: Layout) -> int:
    """Write the bill of materials of each lock, and ask OSV for advisories: 1 when some are known, 3 when OSV does not answer."""
    layout.state_root.mkdir(parents=True, exist_ok=True)
    venv.ensure(layout)
    settings = environment.base(os.environ, f"{layout.venv}/bin:/usr/local/bin:/usr/bin:/bin", layout.bytecode)
    settings |= {name: os.environ[name] for name in ("WMS2_ADVISORIES_URL",) if name in os.environ}
    argv = (str(layout.python), "-m", "deploy.stack.audit", str(layout.state_root / "audit"), *LOCKS)
    return subprocess.run(argv, cwd=layout.source, env=settings, stdin=subprocess.DEVNULL, check=False).returncode


def command_ci(layout: Layout) -> int:
    """What must pass before a change lands: check, test and demo-check, up to the first that fails; then where the time went."""
    spent, code = Spent(), 0
    for name, command in (("check", command_check), ("test", command_test), ("demo-check", command_demo_check)):
        with spent.part(name):
            code = command(layout)
        if code != 0:
            break
    for line in spent.table():
        say(line)
    return code


def command_pool_check(layout: Layout) -> int:
    """Start the pool of the test stack alone, run the hand-written DAG on it, stop the pool."""
    with _stack(layout, "test") as (stack, supervisor):
        supervisor.start(stack.pools[:1])
        begun = time.monotonic()
        site = pool_check.run_example(stack.directory / "submit/pool-check", stack.environment)
        say(f"the example DAG ran at {site} in {time.monotonic() - begun:.1f} s: every event once")
    return 0


def command_stop(layout: Layout) -> int:
    """Stop whatever this checkout started, also what an ended command left."""
    for kind in KINDS:
        directory = layout.kind(kind)
        pid = holder(directory)
        if pid:
            say(f"{kind}: asking its supervisor (pid {pid}) to stop")
            os.kill(pid, signal.SIGTERM)
            deadline = time.monotonic() + STOP_SECONDS
            while holder(directory) and time.monotonic() < deadline:
                time.sleep(0.2)
            if holder(directory):
                raise StackError(f"the supervisor of {directory} (pid {pid}) did not stop in {STOP_SECONDS:.0f} s")
        left = process.sweep(directory)
        for line in left:
            say(f"{kind}: ended {line}")
        if not pid and not left:
            say(f"{kind}: nothing was running")
    return 0


def command_clean_state(layout: Layout) -> int:
    """Stop everything and remove this checkout's state: databases, queues, storage, secrets."""
    command_stop(layout)
    for kind in KINDS:
        directory = layout.kind(kind)
        if directory.exists():
            with Supervisor(directory, say):
                stacks.empty(directory)
            shutil.rmtree(directory)
            say(f"removed {directory}")
    return 0


def _demo_env_file(layout: Layout) -> Path:
    path = layout.kind("demo") / ENV_FILE
    if not path.exists():
        raise StackError("the demo has not been started from this checkout: run `make demo` first")
    return path


def command_shell_env(layout: Layout) -> int:
    """Print the shell line that gives a shell the demo's settings."""
    path = _demo_env_file(layout)
    print(f"set -a; . {shlex.quote(str(path))}; set +a")
    return 0


def command_manage(layout: Layout) -> int:
    """Run manage.py with the demo's settings; its arguments come in ARGS."""
    settings = environment.read_env_file(_demo_env_file(layout))
    settings["PATH"] = settings["PATH"].replace("$PATH", os.environ.get("PATH", os.defpath))
    own = {**environment.base(os.environ, settings["PATH"], layout.bytecode), **settings}
    argv = [str(layout.python), "manage.py", *_arguments("help")]
    os.chdir(layout.source)
    os.execve(argv[0], argv, own)  # noqa: S606  (in place of this process: a shell or a prompt has the terminal to itself)


COMMANDS: Mapping[str, Callable[[Layout], int]] = {
    function.__name__.removeprefix("command_").replace("_", "-"): function
    for function in (
        command_setup, command_demo, command_demo_check, command_test, command_test_long, command_test_apart, command_contract,
        command_faults, command_planted, command_bench, command_check, command_pool_check, command_stop, command_clean_state,
        command_shell_env, command_manage, command_ci, command_audit,
    )
}  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    listed = "\n".join(f"  {name:<12} {(function.__doc__ or '').strip()}" for name, function in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="deploy/bootstrap", description=f"{__doc__}\n\n{listed}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND")
    options = parser.parse_args(arguments)
    try:
        with interruptible():
            return COMMANDS[options.command](paths.layout())
    except StackError as error:
        print(f"wms2: {error}", file=sys.stderr)
        return 1
    except Interrupted as interruption:
        cancel()
        say("interrupted; everything is stopped")
        return 128 + interruption.signal_number
