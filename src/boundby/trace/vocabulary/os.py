"""What a thread waits on inside an OS runtime call, told from the call's name alone."""

from __future__ import annotations

import re

from boundby.model.expressions import expression

# What an OS runtime call waits on. nsys records only calls that can block; those not named here (mmap, open,
# ioctl, pthread_create ...) work in the kernel on the thread's own behalf and count as running.
_BLOCKED_ON: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("lock", expression(r"mutex_(?:timed|clock)?lock|rwlock_\w*(?:rd|wr)lock|spin_lock|flock|futex|lockf")),
    ("condition", expression(r"cond_(?:timed|clock)?wait|barrier_wait|sem_(?:timed|clock)?wait|semop|semtimedop")),
    ("sleep", expression(r"sleep|pause$|sigsuspend|sigwait|sigtimedwait|alarm")),
    (
        "thread or process",
        expression(r"pthread_(?:timed|try|clock)?join|^wait(?:pid|id|3|4)?$|^system$|^p(?:open|close)$"),
    ),
    ("poll", expression(r"poll|select|epoll_p?wait|getevents|io_uring")),
    ("network", expression(r"recv|send(?!file)|accept|connect|getaddrinfo|gethostby|shutdown$")),
    ("queue", expression(r"^mq_|msgrcv|msgsnd")),
    (
        "file",
        expression(
            r"^(?:__)?p?(?:read|write)(?:v2?|64)?(?:_chk)?$|fread|fwrite|fgets|fgetc|fputs|getc|getline|fscanf|fsync"
            r"|fdatasync|sync_file_range|sendfile|copy_file_range|fflush|fputc|fclose|vfprintf|readahead|splice"
        ),
    ),
)

#: Calls that sleep until another thread ends it; those that give up after a time may end by themselves.
HAND_OVER = expression(r"cond_wait|barrier_wait|sem_wait")
#: Calls by which a thread lets others go that wait for a condition.
SIGNALS = expression(r"cond_(?:signal|broadcast)|sem_post")
#: From a waker's signal to the run of the thread it woke: a few microseconds, some tens on a busy machine.
WAKE_LIMIT_NS = 60_000

#: What a thread waits on inside a call of message passing.
MESSAGES = "MPI"
#: What a call can block on; `sleep_kind` counts in this order.
SLEEPS: tuple[str, ...] = tuple(sorted((*(what for what, _ in _BLOCKED_ON), MESSAGES)))


def blocked_on(name: str) -> str | None:
    """What a thread waits on inside an OS runtime call, or None where the call does not block."""
    plain = name.rsplit("@", 1)[0]
    return next((what for what, pattern in _BLOCKED_ON if pattern.search(plain)), None)


def sleep_kind(name: str) -> int:
    """The place of ``blocked_on`` in `SLEEPS`; -1 where the call does not block."""
    what = blocked_on(name)
    return -1 if what is None else SLEEPS.index(what)
