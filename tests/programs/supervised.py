"""A supervisor of two workers that do only what a test needs: `python supervised.py WHAT`.

A worker writes each of its actions to standard output, as a line `NUMBER PROCESS_ID ACTION`. Values of WHAT:

* `serve`: the workers wait for SIGTERM.
* `die`: a worker ends as soon as it is ready.
* `fail`: a worker ends with an error before it is ready.
* `killed`: a worker is killed before it is ready.
* `deaf`: the workers ignore SIGTERM, and are soon killed.
* `stubborn`: the workers ignore SIGTERM, and are not killed for a long time.
* `leave`: the first worker announces that it leaves, but stays.
* `invalid`: the configuration is refused at a reload.
"""

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

from trimtab.proxy.config.load import load_config
from trimtab.proxy.server.workers import supervisor
from trimtab.proxy.server.workers.supervisor import Program, Supervisor
from trimtab.proxy.server.workers.worker import LEAVING, READY, SharedResources, Worker
from trimtab.proxy.telemetry.logs import configure_log, get_log

EXIT = 3


def say(worker: Worker, what: str) -> None:
    """Write one whole line with a single system call, so that lines of several processes do not mix."""
    os.write(1, f"{worker.number} {os.getpid()} {what}\n".encode())


def be_worker(worker: Worker, what: str) -> int:
    """Run as a worker, and return the exit status."""
    signals = {signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    if what == "fail":
        return EXIT
    if what == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    worker.tell(READY)
    if what == "die":
        return EXIT
    if what == "leave" and worker.number == 1:
        worker.tell(LEAVING)
    say(worker, "ready")
    while True:
        number = signal.Signals(signal.sigwait(signals))
        say(worker, number.name)
        if number == signal.SIGQUIT or (number == signal.SIGTERM and what not in {"deaf", "stubborn"}):
            return 0


def main(what: str) -> int:
    """Run the supervisor, or a worker in its forked process. Returns the exit status."""
    if what == "deaf":  # the product waits longer; a test need not
        supervisor.SLACK_SECONDS = 0.2
    if what == "stubborn":
        supervisor.SLACK_SECONDS = supervisor.LAST_SECONDS = 60.0
    configure_log()
    log = get_log()
    shared = SharedResources.open(load_config(settings=["listen=127.0.0.1:0"], environment={}), 2)
    tasks = Path("/proc/self/task")
    threads = len(list(tasks.iterdir())) if tasks.is_dir() else 1
    program = Program(
        lambda: what != "invalid", lambda: 0.0, lambda: log.info("listening", url=shared.requests.url, threads=threads)
    )
    found = Supervisor(shared, program, log).run()
    return found if isinstance(found, int) else be_worker(found, what)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main(sys.argv[1]))
