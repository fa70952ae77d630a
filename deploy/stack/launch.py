"""First step of every command: become the user who runs the servers.

An ordinary user goes straight on. Root creates the system user ``wms2`` if needed, gives it the state and tools
directories, copies the checkout there when that user cannot read it, finds an interpreter that user can run, drops
its privileges for good and goes on as that user, in the same process.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from deploy.stack import mirror, paths
from deploy.stack.environment import passed_on, without_sourced
from deploy.stack.errors import StackError

SERVICE_USER = "wms2"
INTERPRETER_NAMES = ("python3.11", "python3.12", "python3.13", "python3")
INTERPRETERS = tuple(f"{place}/{name}" for name in INTERPRETER_NAMES for place in ("/usr/bin", "/usr/local/bin"))
# What the Makefile hands to a command.
COMMAND_VARIABLES = ("ARGS", "REQUEST", "MONITORING", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
PROBE = "import sys, venv; sys.exit(0 if sys.version_info >= (3, 11) else 3)"


def say(message: str) -> None:
    print(f"wms2: {message}", flush=True)


def service_user() -> pwd.struct_passwd:
    """The system user the servers run as; created when missing."""
    try:
        return pwd.getpwnam(SERVICE_USER)
    except KeyError:
        pass
    useradd = shutil.which("useradd", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if useradd is None:
        raise StackError(f"there is no user {SERVICE_USER!r} and no useradd to make one: create it, or run as an ordinary user")
    say(f"creating the system user {SERVICE_USER} (servers never run as root)")
    options = ("--system", "--user-group", "--home-dir", str(paths.SYSTEM_BASE), "--shell", "/usr/sbin/nologin")
    result = subprocess.run([useradd, *options, SERVICE_USER], capture_output=True, text=True, check=False)
    try:
        return pwd.getpwnam(SERVICE_USER)  # another checkout may have made it at the same moment
    except KeyError:
        raise StackError(f"useradd failed: {result.stderr.strip()}") from None


def become(user: pwd.struct_passwd) -> None:
    """Drop root for good, supplementary groups included."""
    os.initgroups(user.pw_name, user.pw_gid)
    os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
    os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
    os.umask(0o022)


def succeeds_as(user: pwd.struct_passwd, question: Callable[[], bool]) -> bool:
    """Answer a question in a child process that has become ``user``."""
    child = os.fork()
    if child == 0:
        try:
            become(user)
            os._exit(0 if question() else 1)
        except OSError:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def give_directory(path: Path, user: pwd.struct_passwd) -> None:
    """Make sure ``path`` exists, belongs to the user and can be reached by it."""
    if not path.exists():
        path.mkdir(parents=True, mode=0o755)
        os.chown(path, user.pw_uid, user.pw_gid)
    if not succeeds_as(user, lambda: os.access(path, os.R_OK | os.W_OK | os.X_OK)):
        raise StackError(
            f"the user {user.pw_name} cannot write to {path}: give it the directory (chown {user.pw_name} {path}) and let it "
            "pass through the directories above, or choose another place with WMS2_STATE_DIR / WMS2_TOOLS_DIR"
        )


def interpreter_for(user: pwd.struct_passwd) -> str:
    """An interpreter that ``user`` may run, has ``venv`` and is new enough."""
    tried = [c for c in (os.environ.get("PYTHON"), sys.executable, *INTERPRETERS) if c and shutil.which(c)]
    for candidate in dict.fromkeys(str(shutil.which(c)) for c in tried):

        def runs(program: str = candidate) -> bool:
            return subprocess.run([program, "-c", PROBE], cwd="/", capture_output=True, check=False).returncode == 0

        if succeeds_as(user, runs):
            return candidate
    raise StackError(
        f"no Python 3.11 or newer with the venv module that user {user.pw_name} can run; tried {', '.join(tried)}. "
        "Install one system-wide (on Debian: apt-get install python3 python3-venv) or set PYTHON"
    )


def real_inputs(source: Path) -> Path | None:
    """The directory of real input documents beside the checkout, if there is one."""
    configured = os.environ.get("WMS2_REAL_INPUTS")
    candidate = Path(configured) if configured else source.parent / "shared/real-inputs"
    return candidate if candidate.is_dir() else None


def readable(path: Path, copy: Path, user: pwd.struct_passwd) -> Path:
    """The tree or file, or a copy of it that the servers' user can read."""
    if succeeds_as(user, lambda: mirror.is_readable(path)):
        return path
    copy_as(user, path, copy)
    return copy


def copy_as(user: pwd.struct_passwd, source: Path, target: Path) -> None:
    """Copy what only root can read to a place of the user's."""
    packed = mirror.pack(source.resolve())
    if not succeeds_as(user, lambda: mirror.unpack(packed, target) >= 0):
        raise StackError(f"user {user.pw_name} cannot read {source} and could not write the copy of it to {target}")


def prepare_source(source: Path, state_root: Path, user: pwd.struct_passwd) -> Path:
    """The directory to run from: the checkout, or a copy when the user cannot read it."""
    venv = source / ".venv"
    readable = succeeds_as(user, lambda: mirror.is_readable(source))
    if readable and not venv.exists():
        venv.mkdir()
        os.chown(venv, user.pw_uid, user.pw_gid)
    if readable and succeeds_as(user, lambda: os.access(venv, os.W_OK)):
        return source
    copy = state_root / "src"
    reason = "cannot read this checkout" if not readable else "cannot write to its .venv"
    say(f"user {user.pw_name} {reason}: working on a copy in {copy}")
    copy_as(user, source, copy)
    return copy


def kept_environment(user: pwd.struct_passwd) -> dict[str, str]:
    """The environment of the servers' user: HOME, PATH and the like of root would be unreadable or wrong."""
    environment = passed_on(os.environ) | {k: os.environ[k] for k in COMMAND_VARIABLES if k in os.environ}
    environment |= {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(paths.SYSTEM_BASE)}
    environment |= {"USER": user.pw_name, "LOGNAME": user.pw_name, "XDG_CACHE_HOME": str(paths.SYSTEM_BASE / "cache")}
    condor = shutil.which("condor_master")
    if condor and succeeds_as(user, lambda: os.access(condor, os.X_OK)):
        tools = shutil.which("condor_version") or condor
        environment["PATH"] += f":{Path(condor).parent}:{Path(tools).parent}"
    environment.pop("PIP_CACHE_DIR", None)  # root's; pip would refuse a cache it does not own
    return environment


def launch_as_service_user(arguments: Sequence[str]) -> None:
    """The root path: prepare, drop privileges, replace this process. Does not return."""
    user = service_user()
    here = paths.layout(as_root=True)
    give_directory(paths.SYSTEM_BASE, user)
    give_directory(here.state_root, user)
    give_directory(here.tools, user)
    python = interpreter_for(user)
    environment = kept_environment(user)
    request = os.environ.get("REQUEST")
    if request:
        file = Path(request).absolute()
        if not file.is_file():
            raise StackError(f"REQUEST={file}: no such file")
        environment["REQUEST"] = str(readable(file, here.state_root / "requests" / file.name, user))
    inputs = real_inputs(here.source)
    if inputs:
        environment["WMS2_REAL_INPUTS"] = str(readable(inputs, here.state_root / "real-inputs", user).resolve())
    source = prepare_source(here.source, here.state_root, user)
    environment |= {"WMS2_STATE_DIR": str(here.state_root), "WMS2_TOOLS_DIR": str(here.tools)}
    os.chdir(source)
    become(user)
    os.execve(python, [python, "-m", "deploy.stack", *arguments], environment)  # noqa: S606


def main(arguments: Sequence[str]) -> int:
    try:
        restored = without_sourced(os.environ)
        os.environ.clear()
        os.environ.update(restored)
        if os.geteuid() == 0:
            launch_as_service_user(arguments)
        inputs, request = real_inputs(paths.checkout()), os.environ.get("REQUEST")
        if inputs:
            os.environ["WMS2_REAL_INPUTS"] = str(inputs.resolve())
        if request:
            os.environ["REQUEST"] = str(Path(request).absolute())
    except StackError as error:
        print(f"wms2: {error}", file=sys.stderr)
        return 1
    return os.execv(sys.executable, [sys.executable, "-m", "deploy.stack", *arguments])  # noqa: S606


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
